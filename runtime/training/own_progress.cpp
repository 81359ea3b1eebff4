#include "runtime/training/own_progress.hpp"

#include <cmath>
#include <cstring>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/learner.hpp"

namespace waggle {

namespace {

constexpr std::string_view magic = "WGGLOW06";
/// More than any epoch has, and small enough that sums do not overflow.
constexpr std::uint64_t samples_max = 1ULL << 40U;

byte_span bytes_of(const std::shared_ptr<const float_vector>& values) {
  return values ? std::as_bytes(std::span{*values}) : byte_span{};
}

std::uint64_t size_of(const std::shared_ptr<const float_vector>& values) {
  return values ? values->size() : 0;
}

/// Null if there are no values, or not so many.
std::shared_ptr<const float_vector> values_in(byte_reader& in, std::uint64_t count) {
  if (count == 0 || count > in.left() / sizeof(float))
    return nullptr;
  auto raw = in.get_raw(static_cast<std::size_t>(count) * sizeof(float));
  auto values = std::make_shared<float_vector>(static_cast<std::size_t>(count));
  std::memcpy(values->data(), raw.data(), raw.size());
  return values;
}

} // namespace

digest name_of_state(byte_span header) {
  return sha256_stream{}.add("waggle own progress").add(header).finish();
}

std::string head_of(const own_progress& p, const digest& state) {
  WAGGLE_CHECK(p.run.size() <= own_progress::run_bytes_max && p.own.size() <= learner::own_bytes_max
                 && p.position.size() <= position_bytes_max
                 && p.pending_position.size() <= position_bytes_max,
               std::to_string(p.own.size()));
  byte_writer fields;
  fields.put(p.stopped);
  for (const auto* text : {&p.run, &p.own, &p.position, &p.pending_position})
    fields.put(static_cast<std::uint32_t>(text->size()));
  fields.put(p.partial.samples, p.partial.passes, p.partial.scale, size_of(p.partial.sum));
  fields.put(p.pending_samples, size_of(p.pending));
  fields.put(p.local_samples, p.local_passes, p.uncounted_steps, size_of(p.residual));
  fields.put_raw(p.run).put_raw(p.own).put_raw(p.position).put_raw(p.pending_position);
  auto hash = sha256_stream{}
                .add(fields.text())
                .add(bytes_of(p.partial.sum))
                .add(bytes_of(p.pending))
                .add(bytes_of(p.residual))
                .finish();
  byte_writer head;
  head.put_raw(magic).put(state, hash).put_raw(fields.text());
  return head.take();
}

result<own_progress> decode_own_progress(std::string_view bytes, const digest& state) {
  byte_reader in{bytes};
  auto begin = in.get_raw(magic.size());
  bool known = begin == magic;
  if (!known && begin.starts_with(magic.substr(0, magic.size() - 2)))
    return failure{ec::malformed, "another version of waggle has written it"};
  auto of = in.get<digest>();
  auto hash = in.get<digest>();
  if (!known || !in.ok() || sha256(bytes.substr(bytes.size() - in.left())) != hash)
    return failure{ec::malformed, "it is damaged"};
  if (of != state)
    return failure{ec::wrong_run, "it belongs to another state than the checkpoint"};
  own_progress p;
  auto stopped = in.get<std::uint8_t>();
  p.stopped = stopped == 1;
  std::uint32_t run = 0, own = 0, position = 0, pending_position = 0;
  std::uint64_t partial_values = 0, pending_values = 0, residual_values = 0;
  in.read(run, own, position, pending_position);
  in.read(p.partial.samples, p.partial.passes, p.partial.scale, partial_values);
  in.read(p.pending_samples, pending_values);
  in.read(p.local_samples, p.local_passes, p.uncounted_steps, residual_values);
  bool plausible =
    stopped <= 1 && run <= own_progress::run_bytes_max && own <= learner::own_bytes_max
    && position <= position_bytes_max && pending_position <= position_bytes_max
    && p.partial.samples <= samples_max && p.partial.passes <= p.partial.samples
    && p.pending_samples <= samples_max && std::isfinite(p.partial.scale) && p.partial.scale > 0
    && (p.partial.samples == 0 || partial_values > 0)
    && (p.pending_samples == 0) == (pending_values == 0) && p.local_samples <= samples_max
    && p.local_passes <= samples_max && p.uncounted_steps <= samples_max;
  if (!plausible)
    return failure{ec::malformed, "its fields contradict each other"};
  p.run = in.get_raw(run);
  p.own = in.get_raw(own);
  p.position = in.get_raw(position);
  p.pending_position = in.get_raw(pending_position);
  p.partial.sum = values_in(in, partial_values);
  p.pending = values_in(in, pending_values);
  p.residual = values_in(in, residual_values);
  if (!in.ok() || in.left() > 0 || size_of(p.partial.sum) != partial_values
      || size_of(p.pending) != pending_values || size_of(p.residual) != residual_values)
    return failure{ec::malformed, "its length is wrong"};
  return p;
}

} // namespace waggle
