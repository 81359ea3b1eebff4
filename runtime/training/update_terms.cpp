#include "runtime/training/update_terms.hpp"

#include "runtime/core/check.hpp"
#include "runtime/training/state_table.hpp"

namespace waggle {

std::vector<tensor_info> update_terms::infos(const state_table& of) {
  auto parameters = of.indices_of({state_tensor::kind::parameter}).size();
  // Each run is reduced by one member, which takes no more than a part.
  std::vector<tensor_info> out;
  auto add = [&out](const char* name, std::uint64_t values, tensor_role role) {
    for (std::uint64_t at = 0; at < values; at += whole_run_max)
      out.push_back({name, std::min(whole_run_max, values - at), role});
  };
  add("update/numbers", exact_values * parameters * of.numbers(), tensor_role::wish);
  add("update/present", present_values(parameters, of.numbers()), tensor_role::counter);
  return out;
}

void update_terms::write(std::span<float> out) const {
  WAGGLE_CHECK(out.size() == value_count(present.size(), numbers_of_each), "values of terms");
  auto put = [&out](std::optional<double> number) {
    write_exact(number, out.first<exact_values>());
    out = out.subspan(exact_values);
  };
  for (const auto& number : numbers)
    put(number);
  for (bool is : present)
    put(is ? 1 : 0);
}

update_terms update_terms::read(std::span<const float> values, std::size_t parameters,
                                std::size_t numbers_each) {
  update_terms out{parameters, numbers_each};
  WAGGLE_CHECK(values.size() == value_count(parameters, numbers_each), "values of terms");
  auto next = [&values] {
    auto number = read_exact(values.first<exact_values>());
    values = values.subspan(exact_values);
    return number;
  };
  for (auto& number : out.numbers)
    number = next();
  for (std::size_t i = 0; i < parameters; ++i)
    out.present[i] = next().value_or(0) > 0;
  return out;
}

} // namespace waggle
