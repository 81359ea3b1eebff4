#include "runtime/allreduce/result_assembly.hpp"

#include <algorithm>
#include <cstring>

namespace waggle {

result_assembly::result_assembly(const part_table& parts, std::size_t self,
                                 std::shared_ptr<float_vector> vector)
  : parts_(parts), self_(self), vector_(std::move(vector)), uses_(parts.size()) {}

float* result_assembly::place(std::uint32_t part) const {
  return vector_->data() + parts_[part].offset;
}

std::shared_ptr<float> result_assembly::memory_apart(std::uint32_t part) const {
  auto own = std::make_shared<float_vector>(parts_[part].count);
  return {own, own->data()};
}

std::shared_ptr<std::byte> result_assembly::lend(std::uint32_t part) {
  auto& use = uses_[part];
  if (use.lent || use.summed)
    return nullptr;
  use.lent = true;
  return {vector_, reinterpret_cast<std::byte*>(place(part))};
}

bool result_assembly::is_place(std::uint32_t part, const void* at) const {
  return at == place(part);
}

std::shared_ptr<const float> result_assembly::read_in_place(std::uint32_t part) const {
  return {vector_, place(part)};
}

void result_assembly::returned(std::uint32_t part) {
  uses_[part].lent = false;
}

std::shared_ptr<float> result_assembly::memory_for(std::uint32_t part) const {
  const auto& use = uses_[part];
  if (use.lent || use.summed)
    return memory_apart(part);
  return {vector_, place(part)};
}

std::shared_ptr<float> result_assembly::memory_for_sum(std::uint32_t part) {
  auto& use = uses_[part];
  if (parts_[part].default_owner != self_ || use.lent || use.summed)
    return memory_apart(part);
  use.summed = true;
  return {vector_, place(part)};
}

void result_assembly::put(std::uint32_t part, std::shared_ptr<const float> values) {
  if (is_place(part, values.get()))
    apart_.erase(part);
  else
    apart_.insert_or_assign(part, std::move(values));
}

std::shared_ptr<const float> result_assembly::values(std::uint32_t part) const {
  auto found = apart_.find(part);
  return found != apart_.end() ? found->second : read_in_place(part);
}

payload result_assembly::bytes(std::uint32_t part) const {
  auto held = values(part);
  const auto* first = reinterpret_cast<const std::byte*>(held.get());
  return {{std::move(held), first}, parts_[part].count * sizeof(float)};
}

std::shared_ptr<const float_vector> result_assembly::whole() const {
  bool lent = std::any_of(uses_.begin(), uses_.end(), [](const use& u) { return u.lent; });
  if (apart_.empty() && !lent)
    return vector_;
  // Parts cannot be copied into a vector that is still written to or sent from.
  auto copy = std::make_shared<float_vector>(vector_->size());
  for (std::uint32_t i = 0; i < parts_.size(); ++i) {
    auto found = apart_.find(i);
    const auto* from = found == apart_.end() ? place(i) : found->second.get();
    std::memcpy(copy->data() + parts_[i].offset, from, parts_[i].count * sizeof(float));
  }
  return copy;
}

} // namespace waggle
