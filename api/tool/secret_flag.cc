#include "api/tool/secret_flag.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, auth_token_file, "",
          "File with the secret that all share, readable by its owner only. Empty: the "
          "environment's BRAID_AUTH_TOKEN");
