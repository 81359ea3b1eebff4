#include "runtime/config/agreed_options.hpp"

#include <algorithm>

#include "runtime/agreement/data_files.hpp"

namespace waggle {

namespace {

bool belongs(const option_spec& spec, const std::vector<std::string>& groups) {
  return spec.agreed && std::find(groups.begin(), groups.end(), spec.group) != groups.end();
}

/// A strategy may have other defaults than the rest.
run_options defaults_with(const strategy_choice& strategy) {
  auto alone = resolve({}, {}, {{"strategy", {strategy.text(), "--strategy"}}});
  return alone ? std::move(*alone) : run_options{};
}

/// `first`: the fields before those of the options.
result<run_agreement> agreement_of(const run_options& options, std::vector<agreed_field> first,
                                   const std::vector<std::string>& groups) {
  const run_options defaults;
  const auto of_strategy = defaults_with(options.strategy);
  for (const auto& spec : option_table()) {
    if (!belongs(spec, groups))
      continue;
    auto value = spec.agreed(options);
    auto field = listed_field(spec.name, value);
    if (value.empty() || value != spec.agreed(defaults) || value != spec.agreed(of_strategy)) {
      auto given = options.given.find(spec.name);
      field.option = given != options.given.end() ? given->second : field.value;
    }
    first.push_back(std::move(field));
  }
  run_agreement all;
  for (auto& field : first)
    if (auto added = all.add(std::move(field)); !added)
      return added.error();
  return all;
}

} // namespace

result<run_agreement> training_agreement(const run_options& options, std::uint32_t protocol) {
  return agreement_of(options, {{"protocol", std::to_string(protocol), {}}},
                      {"training", "averaging"});
}

result<run_agreement> averaging_agreement(const run_options& options, std::uint32_t protocol) {
  return agreement_of(options,
                      {{"protocol", std::to_string(protocol), {}}, {"strategy", "average", {}}},
                      {"averaging", "average"});
}

bool sets_agreed(const run_options& options) {
  return std::any_of(options.given.begin(), options.given.end(), [](const auto& given) {
    const auto* spec = find_option(given.first);
    return spec != nullptr && belongs(*spec, {"training", "averaging"});
  });
}

std::vector<std::pair<std::string, std::string>> options_of(const run_agreement& agreement) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& field : agreement.fields()) {
    const auto* spec = find_option(field.name);
    run_options scratch;
    if (!field.option.empty() && spec != nullptr && spec->agreed
        && spec->set(scratch, field.option))
      found.emplace_back(field.name, field.option);
  }
  return found;
}

} // namespace waggle
