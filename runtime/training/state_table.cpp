#include "runtime/training/state_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/try.hpp"
#include "runtime/training/update_terms.hpp"

namespace waggle {

namespace {

constexpr std::string_view magic = "WGGLTB01";
constexpr std::size_t fixed_bytes = 8 + digest::size + 8 + 8;
constexpr std::size_t alignment = 64;
constexpr std::size_t name_bytes_max = 4096;
constexpr std::size_t dimensions_max = 16;
constexpr std::size_t tensors_max = 1U << 20U;
/// More steps than any run has; bias correction can still represent the count exactly in a double.
constexpr std::uint64_t steps_max = std::uint64_t{1} << 53U;

std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

failure malformed(const char* why) {
  return {ec::malformed, std::string{"learner state: "} + why};
}

/// The sum of a piece (small enough to stay in the cache) is finite only if every value is:
/// opposite infinities give NaN, and a sum of floats cannot overflow a double.
status check_values(byte_span bytes, const state_tensor& tensor) {
  constexpr std::size_t piece = 4096;
  float values[piece];
  for (std::size_t at = 0; at < bytes.size(); at += sizeof values) {
    auto size = std::min(sizeof values, bytes.size() - at);
    std::memcpy(values, bytes.data() + at, size);
    double sum = 0;
    bool negative = false;
    for (std::size_t i = 0; i < size / sizeof(float); ++i) {
      sum += static_cast<double>(values[i]);
      negative = negative || values[i] < 0;
    }
    if (!std::isfinite(sum))
      return failure{ec::non_finite, tensor.name + " holds NaN or infinite values"};
    if (negative && tensor.never_negative())
      return failure{ec::malformed, tensor.name + " holds negative values"};
  }
  return done{};
}

} // namespace

int state_tensor::group() const {
  constexpr int groups[]{0, 2, 2, 3, 4, 5, 1, 3}; // in the order of `kind`
  return groups[static_cast<std::size_t>(what)];
}

std::uint64_t state_tensor::elements() const {
  std::uint64_t n = 1;
  for (auto size : shape) {
    if (size != 0 && n > std::numeric_limits<std::uint64_t>::max() / size)
      return 0;
    n *= size;
  }
  return n;
}

change_rule state_tensor::changes_by() const {
  if (what == kind::counter)
    return change_rule::largest;
  bool variance = what == kind::buffer && name.ends_with("running_var"); // its name in LibTorch
  return what == kind::square || variance ? change_rule::square : change_rule::difference;
}

state_table::state_table(std::vector<state_tensor> tensors, std::size_t numbers)
  : tensors_(std::move(tensors)), numbers_(numbers),
    terms_(update_terms::value_count(indices_of({state_tensor::kind::parameter}).size(), numbers)) {
  byte_writer rows;
  int group = 0;
  for (const auto& t : tensors_) {
    WAGGLE_CHECK(t.elements() > 0, t.name);
    WAGGLE_CHECK(t.group() >= group, t.name);
    group = t.group();
    offsets_.push_back(values_);
    values_ += t.elements();
    if (t.what == state_tensor::kind::parameter)
      parameters_ = values_;
    if (t.group() <= 1)
      shared_ = values_;
    if (t.what == state_tensor::kind::buffer || t.what == state_tensor::kind::counter)
      buffers_ += t.elements();
    if (t.what == state_tensor::kind::metric)
      metrics_ += t.elements();
    rows.put(static_cast<std::uint8_t>(t.what)).put_text<std::uint16_t>(t.name);
    rows.put(static_cast<std::uint8_t>(t.shape.size()), t.shape);
  }
  rows_ = rows.take();
}

std::vector<std::size_t>
state_table::indices_of(std::initializer_list<state_tensor::kind> kinds) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (std::find(kinds.begin(), kinds.end(), tensors_[i].what) != kinds.end())
      found.push_back(i);
  return found;
}

std::vector<state_tensor>
state_table::tensors_of(std::initializer_list<state_tensor::kind> kinds) const {
  std::vector<state_tensor> found;
  for (auto i : indices_of(kinds))
    found.push_back(tensors_[i]);
  return found;
}

std::size_t state_table::header_bytes() const {
  return aligned(fixed_bytes + rows_.size());
}

std::size_t state_table::image_bytes() const {
  return header_bytes() + values_ * sizeof(float);
}

std::string state_table::header(const digest& schema, std::uint64_t optimizer_steps) const {
  byte_writer out;
  out.put_raw(magic).put(schema, optimizer_steps).put_text<std::uint64_t>(rows_);
  auto text = out.take();
  text.resize(header_bytes());
  return text;
}

result<std::uint64_t> state_table::check(byte_span image, const digest& schema) const {
  return check_in(borrowed_bytes{image}, 0, schema);
}

result<std::uint64_t> state_table::check_in(const byte_source& from, std::uint64_t at,
                                            const digest& schema) const {
  WAGGLE_CHECK(at <= from.size(), std::to_string(at) + " of " + std::to_string(from.size()));
  auto size = from.size() - at;
  std::vector<std::byte> header(std::min<std::size_t>(header_bytes(), size));
  WAGGLE_TRY(read, from.read(at, header));
  byte_reader in{byte_span{header}};
  if (in.get_raw(magic.size()) != magic)
    return malformed("it is none of this version");
  auto theirs = in.get<digest>();
  auto steps = in.get<std::uint64_t>();
  auto bytes = in.get<std::uint64_t>();
  if (!in.ok())
    return malformed("it is cut off");
  if (theirs != schema)
    return failure{ec::schema_mismatch, "the state is of another model or optimizer"};
  if (bytes != rows_.size() || in.get_raw(rows_.size()) != rows_)
    return malformed("it has other tensors");
  if (size != image_bytes())
    return malformed("it is cut off, or too long");
  if (steps > steps_max)
    return malformed("it has taken more steps than any run does");
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    auto good = for_each_piece(from, at + header_bytes() + offsets_[i] * sizeof(float),
                               tensors_[i].elements() * sizeof(float),
                               [&](byte_span piece) { return check_values(piece, tensors_[i]); });
    if (!good)
      return good.error();
  }
  return steps;
}

byte_span state_table::values_in(byte_span image, std::size_t i) const {
  return image.subspan(header_bytes() + offsets_[i] * sizeof(float),
                       tensors_[i].elements() * sizeof(float));
}

namespace {

/// The table at the beginning of an image.
result<state_table> read_rows(byte_span begin) {
  constexpr auto values_max = std::uint64_t{1} << 48U;
  byte_reader in{begin};
  if (in.get_raw(magic.size()) != magic)
    return malformed("it is none of this version");
  (void)in.get_raw(digest::size + sizeof(std::uint64_t)); // schema and steps
  byte_reader rows{in.get_text<std::uint64_t>()};
  if (!in.ok())
    return malformed("it is cut off");
  std::vector<state_tensor> tensors;
  std::uint64_t values = 0;
  while (rows.left() > 0) {
    state_tensor t;
    auto kind = rows.get<std::uint8_t>();
    t.what = static_cast<state_tensor::kind>(kind);
    t.name = rows.get_text<std::uint16_t>();
    auto dimensions = rows.get<std::uint8_t>();
    if (!rows.ok() || kind > static_cast<std::uint8_t>(state_tensor::kind::counter)
        || t.name.size() > name_bytes_max || dimensions > dimensions_max
        || tensors.size() == tensors_max)
      return malformed("a row of its table is damaged");
    for (std::uint8_t i = 0; i < dimensions; ++i)
      t.shape.push_back(rows.get<std::uint64_t>());
    auto elements = t.elements();
    if (!rows.ok() || elements == 0 || elements > values_max
        || (!tensors.empty() && t.group() < tensors.back().group()))
      return malformed("a row of its table is damaged");
    values += elements;
    if (values > values_max)
      return malformed("its table describes more than any state has");
    tensors.push_back(std::move(t));
  }
  return state_table{std::move(tensors)};
}

/// "exp_avg" of "exp_avg/head.weight": which block of the state a tensor is in.
std::string block_of(const state_tensor& tensor) {
  bool of_passes =
    tensor.what == state_tensor::kind::buffer || tensor.what == state_tensor::kind::counter;
  return of_passes ? "buffers" : tensor.name.substr(0, tensor.name.find('/'));
}

std::set<std::string> blocks_of(const state_table& table) {
  std::set<std::string> names;
  for (const auto& t : table.tensors())
    if (t.what != state_tensor::kind::parameter)
      names.insert(block_of(t));
  return names;
}

std::string described(const state_tensor& tensor) {
  auto text = tensor.name;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i)
    text += (i == 0 ? " of " : " x ") + std::to_string(tensor.shape[i]);
  return text;
}

} // namespace

result<state_table> read_state_table(byte_span image) {
  auto table = read_table_in(borrowed_bytes{image}, 0);
  if (table && image.size() != table->image_bytes())
    return malformed("it is cut off, or too long");
  return table;
}

result<state_table> read_table_in(const byte_source& from, std::uint64_t at) {
  constexpr std::uint64_t table_bytes_max = 64U << 20U;
  if (from.size() < at + fixed_bytes)
    return malformed("it is cut off");
  auto left = from.size() - at;
  std::vector<std::byte> begin(fixed_bytes);
  WAGGLE_TRY(begun, from.read(at, begin));
  auto table = byte_reader{byte_span{begin}.subspan(fixed_bytes - 8)}.get<std::uint64_t>();
  if (table > std::min(table_bytes_max, left - fixed_bytes))
    return malformed("it is cut off");
  begin.resize(fixed_bytes + static_cast<std::size_t>(table));
  WAGGLE_TRY(rest, from.read(at, begin));
  return read_rows(begin);
}

std::string how_tables_differ(const state_table& theirs, const state_table& ours) {
  std::string cure;
  std::string what;
  auto there = theirs.tensors_of({state_tensor::kind::parameter});
  auto here = ours.tensors_of({state_tensor::kind::parameter});
  auto blocks_there = blocks_of(theirs);
  auto blocks_here = blocks_of(ours);
  if (there != here) {
    auto [a, b] = std::mismatch(there.begin(), there.end(), here.begin(), here.end());
    auto shown = [](auto one, auto end) { return one == end ? "no more" : described(*one); };
    what = "it is of a model with other parameters (" + shown(a, there.end()) + " there, "
           + shown(b, here.end()) + " here)";
    cure = "the --model, --layers, --width, --heads and --context";
  } else if (theirs.tensors_of({state_tensor::kind::outer})
             != ours.tensors_of({state_tensor::kind::outer})) {
    return "it is of another --strategy; to use it, start this peer with the one with which it was "
           "written, or begin a new run from its parameters with --from";
  } else if (blocks_there != blocks_here) {
    std::set<std::string> options;
    auto listed = [&](const std::set<std::string>& those, const std::set<std::string>& but) {
      std::string names;
      for (const auto& name : those)
        if (!but.contains(name)) {
          names += (names.empty() ? "" : ", ") + (name == "data" ? "ledger of samples" : name);
          options.insert(name == "schedule"   ? "--schedule"
                         : name == "data"     ? "--passes"
                         : name == "gradient" ? "--average-gradients"
                         : name == "buffers"  ? "--model"
                                              : "--optimizer");
        }
      return names;
    };
    auto more = listed(blocks_there, blocks_here);
    auto less = listed(blocks_here, blocks_there);
    what = (more.empty() ? "it has" : "it has " + more + (less.empty() ? "," : ", and"))
           + (less.empty() ? " which this peer's state has not" : " no " + less);
    for (const auto& option : options)
      cure += (cure.empty() ? "the " : " and ") + option;
  } else {
    what = "its tensors are those of this peer, but not the numbers of the optimizer, or the heads "
           "of the model";
    cure = "the --optimizer with its numbers (as --beta1 or --weight-decay) and the --heads";
  }
  return what + "; to use it, start this peer with " + cure + " with which it was written";
}

} // namespace waggle
