#include "runtime/training/strategy.hpp"

#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/nearest.hpp"
#include "runtime/core/try.hpp"
#include "runtime/training/strategies/strategies.hpp"

namespace waggle {

std::span<const strategy_row> strategy_table() {
  static const strategy_row table[] = {strategies::collaborative,
                                       strategies::data_parallel,
                                       strategies::diloco,
                                       strategies::daso,
                                       strategies::local_updates,
                                       strategies::decentralized,
                                       strategies::decentralized_sgd,
                                       strategies::decentralized_adam};
  return table;
}

const strategy_row* find_strategy(std::string_view text) {
  return find_named(strategy_table(), text.substr(0, text.find(':')));
}

double strategy_row::number(const strategy_settings& settings, std::string_view of) const {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i].name == of)
      return i < settings.numbers.size() ? settings.numbers[i] : *numbers[i].initial;
  WAGGLE_CHECK(false, std::string{of});
  return 0;
}

result<strategy_choice> strategy_choice::parse(std::string_view text) {
  const auto* row = find_strategy(text);
  auto colon = text.find(':');
  if (row == nullptr)
    return failure{ec::bad_config, "is not one of " + listed(strategy_table(), ", ")
                                     + "; the nearest is "
                                     + nearest(text.substr(0, colon), names_in(strategy_table()))};
  written_numbers written;
  if (colon != std::string_view::npos) {
    WAGGLE_TRY(read, read_numbers(row->name, names_in(row->numbers), text.substr(colon + 1)));
    written = std::move(*read);
  }
  strategy_choice all{*row};
  for (const auto& number : row->numbers) {
    WAGGLE_TRY(value, value_of(row->name, number, written));
    all.numbers_.push_back(value->front());
  }
  if (row->check != nullptr)
    if (auto fits = row->check({.numbers = all.numbers_}); !fits)
      return fits.error();
  return all;
}

strategy_choice::strategy_choice(const char* text) : row_(nullptr) {
  auto read = parse(text);
  WAGGLE_CHECK(read.ok(), text);
  *this = std::move(*read);
}

std::string strategy_choice::text() const {
  std::string all{row_->name};
  char before = ':';
  for (std::size_t i = 0; i < numbers_.size(); ++i)
    if (numbers_[i] != *row_->numbers[i].initial) {
      all.append(1, before).append(row_->numbers[i].name).append("=");
      all.append(shortest_text(numbers_[i]));
      before = ',';
    }
  return all;
}

std::optional<strategy_phase> strategy_choice::phase(std::span<const float> state) const {
  if (row_->phase == nullptr)
    return std::nullopt;
  return row_->phase({.numbers = numbers_}, state);
}

learner_factory strategy_choice::learners(learner_factory make) const {
  return row_->learners == nullptr ? make : row_->learners(std::move(make), {.numbers = numbers_});
}

std::string strategy_help() {
  std::string all;
  for (const auto& row : strategy_table()) {
    all.append(all.empty() ? "" : " ").append(row.name);
    char before = ':';
    for (const auto& number : row.numbers) {
      all.append(1, before).append(with_default(number));
      before = ',';
    }
    all.append(": ").append(row.help);
  }
  return all;
}

} // namespace waggle
