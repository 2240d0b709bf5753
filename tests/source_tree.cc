#include "tests/source_tree.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <regex>
#include <sstream>

namespace braid::house {

namespace fs = std::filesystem;

std::vector<Include> Source::Includes() const {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
  std::vector<Include> includes;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    // The code says that it is no comment; the line still has the name in quotes.
    if (code[i].find('#') == std::string::npos) continue;
    if (!std::regex_search(lines[i], match, kInclude)) continue;
    const std::string path = match[2];
    const bool is_public = path.starts_with("braid/");
    includes.push_back({i, is_public ? "api/include/" + path : path, match[1] == "\""});
  }
  return includes;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string StripComments(const std::string& text, Literals literals) {
  std::string code;
  enum class In { kCode, kLineComment, kBlockComment, kString, kCharacter, kRawString };
  In in = In::kCode;
  std::string raw_end;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '\n') {
      if (in == In::kLineComment) in = In::kCode;
      code += c;
      continue;
    }
    switch (in) {
      case In::kCode:
        if (c == '/' && next == '/') {
          in = In::kLineComment;
        } else if (c == '/' && next == '*') {
          in = In::kBlockComment;
          ++i;
        } else if (c == '"' && i > 0 && text[i - 1] == 'R') {
          in = In::kRawString;
          const size_t open = text.find('(', i);
          raw_end = ")" + text.substr(i + 1, open - i - 1) + "\"";
          code += c;
        } else if (c == '"') {
          in = In::kString;
          code += c;
        } else if (c == '\'' && !(i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
          in = In::kCharacter;  // not the digit separator of 1'000
          code += c;
        } else {
          code += c;
        }
        break;
      case In::kLineComment:
        break;
      case In::kBlockComment:
        if (c == '*' && next == '/') {
          in = In::kCode;
          ++i;
        }
        break;
      case In::kString:
      case In::kCharacter:
        if (c == '\\') {
          ++i;
          if (literals == Literals::kKeep) code += {c, next};
          if (literals == Literals::kBlank && next == '\n') code += '\n';
        } else if (c == (in == In::kString ? '"' : '\'')) {
          in = In::kCode;
          code += c;
        } else if (literals == Literals::kKeep) {
          code += c;
        }
        break;
      case In::kRawString:
        if (text.compare(i, raw_end.size(), raw_end) == 0) {
          i += raw_end.size() - 1;
          in = In::kCode;
          code += '"';
        } else if (literals == Literals::kKeep) {
          code += c;
        }
        break;
    }
  }
  return code;
}

std::vector<Function> FunctionsOf(const std::vector<std::string>& code) {
  static const std::regex kNoFunction(
      R"(\b(namespace|class|struct|enum|union)\b[^()]*$|(=|return|\(|,)\s*$)");
  constexpr size_t kDeepest = 4;
  struct Block {
    size_t line;
    std::string head;
  };
  std::vector<Block> open;
  std::vector<Function> functions;
  std::string head;
  for (size_t i = 0; i < code.size(); ++i) {
    for (const char c : code[i]) {
      if (c == '{') {
        open.push_back({i, head});
      } else if (c == '}' && !open.empty()) {
        const Block block = std::move(open.back());
        open.pop_back();
        const bool is_deep = code[block.line].find_first_not_of(' ') > kDeepest;
        if (!is_deep && i > block.line && !std::regex_search(block.head, kNoFunction)) {
          const std::string& first = code[block.line + 1];
          functions.push_back({block.line, i - block.line + 1, block.head,
                               first.find("return {") == first.find_first_not_of(' ')});
        }
      }
      const bool ends = c == '{' || c == '}' || c == ';';
      head = ends ? std::string() : head + c;
    }
    head += ' ';
  }
  return functions;
}

std::vector<Source> ReadSources(const fs::path& root, const std::vector<std::string>& folders) {
  std::vector<Source> sources;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h" && extension != ".cu") continue;
      const std::string text = ReadFile(entry.path());
      sources.push_back(
          {fs::relative(entry.path(), root), Lines(text), Lines(StripComments(text))});
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.path < b.path; });
  return sources;
}

}  // namespace braid::house
