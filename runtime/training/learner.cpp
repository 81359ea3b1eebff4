#include "runtime/training/learner.hpp"

#include <stdexcept>

#include "runtime/core/check.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

/// Reads the values of one tensor after another; copies them only if necessary.
class held_values {
public:
  explicit held_values(const learner& from) : from_(from) {}

  /// Valid until the next call.
  std::span<const float> operator()(std::size_t which) {
    if (auto values = from_.values_of(which); !values.empty())
      return values;
    copy_.resize(from_.tensors()[which].elements());
    from_.read_tensor(which, copy_);
    return copy_;
  }

private:
  const learner& from_;
  float_vector copy_;
};

} // namespace

void learner::merge_buffers(std::span<const float> mean, std::span<const float> contributed) {
  if (below_ != nullptr)
    return below_->merge_buffers(mean, contributed);
  merge_buffers_of(*this, tensors(), mean, contributed);
}

void learner::step_locally(double /*lr*/) {
  WAGGLE_CHECK(false, "the learner cannot step locally");
}

void learner::add_change(std::span<const std::size_t> which, std::span<const float> mean,
                         std::span<const float> snapshot) {
  if (below_ != nullptr)
    return below_->add_change(which, mean, snapshot);
  std::lock_guard lock{values_};
  change_tensors_of(*this, tensors(), which, mean, snapshot);
  ++changes_;
}

std::optional<std::uint64_t> learner::copy_tensors(std::span<const std::size_t> which,
                                                   std::span<float> out) const {
  if (below_ != nullptr)
    return below_->copy_tensors(which, out);
  std::lock_guard lock{values_};
  copy_tensors_of(*this, tensors(), which, out);
  return changes_;
}

digest learner::parameters_digest() const {
  const auto& table = tensors();
  sha256_stream hash;
  held_values values{*this};
  for (std::size_t i = 0; i < table.size() && table.offset(i) < table.shared_count(); ++i)
    hash.add(std::as_bytes(values(i)));
  return hash.finish();
}

status learner::save_state_to(byte_store& to, std::uint64_t at) const {
  const auto& table = tensors();
  auto header = table.header(schema(), optimizer_steps());
  WAGGLE_TRY(begun, to.write(at, as_byte_span(header)));
  held_values values{*this};
  for (std::size_t i = 0; i < table.size(); ++i) {
    auto begin = at + header.size() + table.offset(i) * sizeof(float);
    WAGGLE_TRY(written, to.write(begin, std::as_bytes(values(i))));
  }
  return done{};
}

status learner::load_state_from(const byte_source& from, std::uint64_t at) {
  const auto& table = tensors();
  WAGGLE_TRY(steps, table.check_in(from, at, schema()));
  auto read = [&](std::size_t which, std::span<float> out) {
    return from.read(at + table.header_bytes() + table.offset(which) * sizeof(float),
                     std::as_writable_bytes(out));
  };
  WAGGLE_TRY(usable, check_values(read));
  float_vector values;
  for (std::size_t i = 0; i < table.size(); ++i) {
    values.resize(table[i].elements());
    if (auto there = read(i, values); !there)
      throw std::runtime_error{"half a state was loaded: " + to_string(there.error())};
    write_tensor(i, values);
  }
  set_optimizer_steps(*steps);
  return done{};
}

} // namespace waggle
