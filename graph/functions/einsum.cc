// Einstein's summation as a composite: diagonals and sums of single operands first, then pairs.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/functions/operand_checks.h"

namespace braid {
namespace {

using Ints = std::vector<int64_t>;

// A letter per axis. The dims of "..." have characters of their own: kDots for the last one,
// kDots + 1 for the one before it, ...
constexpr char kDots = 1;
constexpr int kMostDots = 32;
using Letters = std::string;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool Has(const Letters& letters, char c) { return letters.find(c) != Letters::npos; }

struct Term {
  Tensor x;
  Letters letters;
};

class Summation {
 public:
  Summation(std::string_view equation, const std::vector<Tensor>& operands, SourceLocation where)
      : equation_(equation), operands_(operands), where_(where) {}

  Tensor Build() {
    if (!Parse()) return Invalid(operands_, where_);
    for (Term& term : terms_) {
      TakeDiagonals(term);
      SumOut(term);
    }
    while (terms_.size() > 1) ContractCheapest();
    Term& last = terms_[0];
    if (!last.x.valid()) return last.x;
    return Ordered(last, out_);
  }

 private:
  bool Error(const std::string& why) {
    Fail(operands_[0], absl::StrCat("einsum '", std::string(equation_), "': ", why), where_);
    return false;
  }

  bool Parse() {
    std::string text;
    for (char c : equation_) {
      if (c != ' ') text += c;
    }
    const size_t arrow = text.find("->");
    std::string inputs = text.substr(0, arrow);
    std::vector<std::string> parts(1);
    for (char c : inputs) {
      if (c == ',') {
        parts.emplace_back();
      } else {
        parts.back() += c;
      }
    }
    if (parts.size() != operands_.size()) {
      return Error(
          absl::StrCat("it names ", parts.size(), " operands, there are ", operands_.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!ParseOperand(parts[i], static_cast<int>(i))) return false;
    }
    for (Term& term : terms_) DropThinDots(term);
    return ParseOutput(arrow == std::string::npos ? nullptr : text.c_str() + arrow + 2);
  }

  // Splits "ab...c" at the dots.
  bool SplitDots(const std::string& text, Letters& before, Letters& after, bool& has_dots) {
    const size_t dots = text.find("...");
    has_dots = dots != std::string::npos;
    before = text.substr(0, dots);
    after = has_dots ? text.substr(dots + 3) : Letters();
    for (char c : before + after) {
      if (IsLetter(c)) continue;
      return Error(absl::StrCat("'", std::string(1, c), "' is no letter"));
    }
    return true;
  }

  static Letters Dots(int count) {
    Letters letters;
    for (int i = count; i-- > 0;) letters += static_cast<char>(kDots + i);
    return letters;
  }

  bool ParseOperand(const std::string& text, int index) {
    Letters before, after;
    bool has_dots = false;
    if (!SplitDots(text, before, after, has_dots)) return false;
    const Tensor x = operands_[index];
    const Shape shape = x.shape();
    const int named = static_cast<int>(before.size() + after.size());
    const int dots = shape.rank() - named;
    if (dots < 0 || (dots > 0 && !has_dots) || dots > kMostDots) {
      return Error(absl::StrCat("operand ", index, " is ", x.type().ToString(), ", '", text,
                                "' names ", named, " axes"));
    }
    most_dots_ = std::max(most_dots_, dots);
    const Letters letters = before + Dots(dots) + after;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (!SetSize(letters[axis], shape[axis], index)) return false;
    }
    terms_.push_back({x, letters});
    return true;
  }

  bool SetSize(char letter, int64_t size, int operand) {
    const auto [known, is_new] = sizes_.try_emplace(letter, size, operand);
    auto& [known_size, known_operand] = known->second;
    if (is_new || known_size == size) return true;
    if (!IsLetter(letter) && (known_size == 1 || size == 1)) {
      if (known_size == 1) known->second = {size, operand};
      return true;
    }
    return Error(absl::StrCat(
        IsLetter(letter) ? absl::StrCat("letter ", std::string(1, letter)) : "a dim of '...'",
        " is ", known_size, " in operand ", known_operand, " and ", size, " in operand ", operand));
  }

  int64_t SizeOfLetter(char letter) const { return sizes_.at(letter).first; }

  // A dim of 1 that broadcasts need not be there.
  void DropThinDots(Term& term) {
    Letters kept;
    Ints dims;
    const Shape shape = term.x.shape();
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const char letter = term.letters[axis];
      if (!IsLetter(letter) && shape[axis] != SizeOfLetter(letter)) continue;
      kept += letter;
      dims.push_back(shape[axis]);
    }
    if (kept.size() == term.letters.size()) return;
    term = {Reshape(term.x, Shape(std::move(dims)), where_), kept};
  }

  bool ParseOutput(const char* text) {
    if (text == nullptr) {
      out_ = Dots(most_dots_);
      std::map<char, int> counts;
      for (const Term& term : terms_) {
        for (char c : term.letters) ++counts[c];
      }
      for (const auto& [letter, count] : counts) {
        if (IsLetter(letter) && count == 1) out_ += letter;
      }
      return true;
    }
    Letters before, after;
    bool has_dots = false;
    if (!SplitDots(text, before, after, has_dots)) return false;
    out_ = before + (has_dots ? Dots(most_dots_) : Letters()) + after;
    for (size_t i = 0; i < out_.size(); ++i) {
      const std::string letter(1, out_[i]);
      if (!sizes_.contains(out_[i])) {
        return Error(absl::StrCat("letter ", letter, " of the result is in no operand"));
      }
      if (out_.find(out_[i], i + 1) != Letters::npos) {
        return Error(absl::StrCat("letter ", letter, " stands twice in the result"));
      }
    }
    return true;
  }

  void TakeDiagonals(Term& term) {
    for (size_t i = 0; i < term.letters.size();) {
      const char letter = term.letters[i];
      const size_t second = term.letters.find(letter, i + 1);
      if (second == Letters::npos) {
        ++i;
        continue;
      }
      term.x = Diagonal(term.x, static_cast<int64_t>(i), static_cast<int64_t>(second), where_);
      term.letters.erase(second, 1);
      term.letters.erase(i, 1);
      term.letters += letter;
      i = 0;
    }
  }

  // Whether the result or a term other than these two has the letter.
  bool IsNeeded(char letter, const Term* a, const Term* b) const {
    return Has(out_, letter) || std::any_of(terms_.begin(), terms_.end(), [&](const Term& term) {
             return &term != a && &term != b && Has(term.letters, letter);
           });
  }

  void SumOut(Term& term) {
    Ints axes;
    Letters kept;
    for (size_t i = 0; i < term.letters.size(); ++i) {
      if (IsNeeded(term.letters[i], &term, nullptr)) {
        kept += term.letters[i];
      } else {
        axes.push_back(static_cast<int64_t>(i));
      }
    }
    if (axes.empty()) return;
    term = {ReduceSum(term.x, {.axes = axes}, where_), kept};
  }

  double Products(const Term& a, const Term& b) const {
    double products = 1;
    for (char c : a.letters) products *= static_cast<double>(SizeOfLetter(c));
    for (char c : b.letters) {
      if (!Has(a.letters, c)) products *= static_cast<double>(SizeOfLetter(c));
    }
    return products;
  }

  void ContractCheapest() {
    size_t best_i = 0, best_j = 1;
    for (size_t i = 0; i < terms_.size(); ++i) {
      for (size_t j = i + 1; j < terms_.size(); ++j) {
        if (Products(terms_[i], terms_[j]) < Products(terms_[best_i], terms_[best_j])) {
          best_i = i;
          best_j = j;
        }
      }
    }
    terms_[best_i] = Contract(terms_[best_i], terms_[best_j]);
    terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(best_j));
  }

  Term Contract(const Term& a, const Term& b) {
    Letters batch, sum, m, n;
    for (char c : a.letters) {
      (!Has(b.letters, c) ? m : IsNeeded(c, &a, &b) ? batch : sum) += c;
    }
    for (char c : b.letters) {
      if (!Has(a.letters, c)) n += c;
    }
    const bool is_product = m.empty() && n.empty();
    if (sum.empty() || is_product || !IsFloating(a.x.dtype())) {
      const Letters all = batch + m + n + sum;
      const Tensor left = Spread(a, all), right = Spread(b, all);
      Term product = {Mul(left, right, where_), all};
      SumLast(product, sum.size());
      return product;
    }
    return MultiplyMatrices(a, b, {batch, sum, m, n});
  }

  struct Roles {
    Letters batch, sum, m, n;
  };

  Term MultiplyMatrices(const Term& a, const Term& b, const Roles& roles) {
    const auto& [batch, sum, m, n] = roles;
    const bool transpose_a = !m.empty() && a.letters == batch + sum + m;
    const bool transpose_b = !n.empty() && b.letters == batch + n + sum;
    Tensor left = Ordered(a, transpose_a ? batch + sum + m : batch + m + sum);
    Tensor right = Ordered(b, transpose_b ? batch + n + sum : batch + sum + n);
    // Without a batch, the rows of a stay axes of their own: they can be split one by one.
    const bool keeps_rows = batch.empty() && !transpose_a && !m.empty();
    Ints left_dims = Sizes(batch), right_dims = left_dims;
    const int64_t rows = Product(m), inner = Product(sum), columns = Product(n);
    if (transpose_a) {
      left_dims.insert(left_dims.end(), {inner, rows});
    } else if (keeps_rows) {
      left_dims = Sizes(m + sum[0]);
      left_dims.back() = inner;
    } else {
      left_dims.insert(left_dims.end(), {rows, inner});
    }
    const Ints matrix = transpose_b ? Ints{columns, inner} : Ints{inner, columns};
    right_dims.insert(right_dims.end(), matrix.begin(), matrix.end());
    left = Shaped(left, std::move(left_dims));
    right = Shaped(right, std::move(right_dims));
    const Tensor product =
        MatMul(left, right, {.transpose_a = transpose_a, .transpose_b = transpose_b}, where_);
    const Letters letters = batch + m + n;
    return {Shaped(product, Sizes(letters)), letters};
  }

  Ints Sizes(const Letters& letters) const {
    Ints sizes;
    for (char c : letters) sizes.push_back(SizeOfLetter(c));
    return sizes;
  }
  int64_t Product(const Letters& letters) const {
    int64_t product = 1;
    for (char c : letters) product *= SizeOfLetter(c);
    return product;
  }

  Tensor Shaped(Tensor x, Ints dims) {
    if (!x.valid() || x.shape().dims() == dims) return x;
    return Reshape(x, Shape(std::move(dims)), where_);
  }

  // The term's axes in the order of `letters`, all of which it has.
  Tensor Ordered(const Term& term, const Letters& letters) {
    if (term.letters == letters) return term.x;
    Ints perm;
    for (char c : letters) perm.push_back(static_cast<int64_t>(term.letters.find(c)));
    return Transpose(term.x, std::move(perm), where_);
  }

  // The same, with dims of 1 for letters that it does not have.
  Tensor Spread(const Term& term, const Letters& letters) {
    Letters own;
    Ints dims;
    for (char c : letters) {
      if (Has(term.letters, c)) own += c;
      dims.push_back(Has(term.letters, c) ? SizeOfLetter(c) : 1);
    }
    return Shaped(Ordered(term, own), std::move(dims));
  }

  void SumLast(Term& term, size_t count) {
    if (count == 0) return;
    Ints axes(count);
    for (size_t i = 0; i < count; ++i) axes[i] = -1 - static_cast<int64_t>(i);
    term.x = ReduceSum(term.x, {.axes = std::move(axes)}, where_);
    term.letters.resize(term.letters.size() - count);
  }

  std::string_view equation_;
  const std::vector<Tensor>& operands_;
  SourceLocation where_;
  std::map<char, std::pair<int64_t, int>> sizes_;  // size, and the first operand that has it
  int most_dots_ = 0;
  std::vector<Term> terms_;
  Letters out_;
};

}  // namespace

Tensor Einsum(std::string_view equation, const std::vector<Tensor>& operands,
              SourceLocation where) {
  if (operands.empty() || !AllValid(operands)) return Invalid(operands, where);
  return Summation(equation, operands, where).Build();
}

}  // namespace braid
