#include "runtime/training/schedule_text.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/named.hpp"
#include "runtime/core/nearest.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

using form = named_number::form;

constexpr named_number length{"epochs", form::whole, 1, 0x1p40, {}};

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

std::vector<std::string> known_numbers(const schedule_row& row) {
  auto names = names_in(row.numbers);
  names.emplace_back(length.name);
  return names;
}

result<schedule_part> parse_part(std::string_view text) {
  auto colon = text.find(':');
  auto name = text.substr(0, colon);
  const auto* row = find_named(schedule_table(), name);
  if (row == nullptr)
    return bad("has the unknown schedule '" + std::string{name} + "': use "
               + listed(schedule_table()) + "; the nearest is "
               + nearest(name, names_in(schedule_table())));
  written_numbers given;
  if (colon != std::string_view::npos) {
    WAGGLE_TRY(parsed, read_numbers(row->name, known_numbers(*row), text.substr(colon + 1)));
    given = std::move(*parsed);
  }
  schedule_part part{row, {}};
  for (const auto& number : row->numbers) {
    WAGGLE_TRY(parsed, value_of(row->name, number, given));
    part.numbers.insert(part.numbers.end(), parsed->begin(), parsed->end());
  }
  if (given.contains(length.name)) {
    WAGGLE_TRY(parsed, value_of(row->name, length, given));
    part.epochs = static_cast<std::uint64_t>(parsed->front());
  }
  return part;
}

/// The epochs of all parts but the last.
std::uint64_t epochs_before_last(const std::vector<schedule_part>& parts) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i)
    sum += parts[i].epochs.value_or(0);
  return sum;
}

/// Impossible combinations of the numbers of a part.
status check_part(const schedule_part& part, double peak) {
  std::string name{part.row->name};
  double own = 0; // epochs that its warm-up and decay take
  for (const auto& number : part.row->numbers) {
    if (number.name == "warmup" || number.name == "decay")
      own += part[number.name];
    if (number.name == "floor" && part["floor"] > peak)
      return bad("--schedule: floor of " + name + " is " + shortest_text(part["floor"])
                 + ", which is above --lr " + shortest_text(peak)
                 + ": the rate would rise; lower the floor");
  }
  if (name == plateau_name && part["factor"] == 1)
    return bad("--schedule: factor of plateau is 1: the rate would never fall; write factor=0.1");
  if (name == plateau_name && part["absolute"] == 0 && part["threshold"] >= 1)
    return bad("--schedule: threshold of plateau is " + shortest_text(part["threshold"])
               + ": no loss above 0 falls by so much of the best one; for an absolute threshold "
                 "write absolute=1");
  if (part.row->ends && own > static_cast<double>(*part.epochs))
    return bad("--schedule: warm-up and decay of " + name + " take " + shortest_text(own)
               + " epochs, but it lasts only " + std::to_string(*part.epochs));
  return done{};
}

bool warms_up(const schedule_part& part) {
  return find_named(part.row->numbers, "warmup") != nullptr;
}

} // namespace

result<std::vector<schedule_part>> parse_schedule(std::string_view text) {
  std::vector<schedule_part> parts;
  for (auto piece : pieces_of(text, '/')) {
    WAGGLE_TRY(part, parse_part(piece));
    parts.push_back(std::move(*part));
  }
  return parts;
}

std::string text_of(const std::vector<schedule_part>& parts) {
  std::string all;
  for (const auto& part : parts) {
    all.append(all.empty() ? "" : "/").append(part.row->name);
    char before = ':';
    auto add = [&](std::string_view name, const std::string& value) {
      all.append(1, std::exchange(before, ',')).append(name).append("=").append(value);
    };
    for (std::size_t i = 0; i < part.row->numbers.size(); ++i) {
      const auto& number = part.row->numbers[i];
      auto value = shortest_text(part.numbers[i]);
      for (auto next = i + 1; number.what == form::list && next < part.numbers.size(); ++next)
        value.append("+").append(shortest_text(part.numbers[next]));
      add(number.name, value);
    }
    if (part.epochs)
      add(length.name, std::to_string(*part.epochs));
  }
  return all;
}

result<lr_schedule> make_schedule(std::vector<schedule_part> parts, double peak,
                                  std::uint64_t warmup_epochs, std::uint64_t total_epochs) {
  if (!parts.empty() && warmup_epochs > 0 && warms_up(parts.front()))
    return bad("--warmup-epochs cannot stand before --schedule "
               + std::string{parts.front().row->name}
               + ", which has a warm-up of its own: set its number warmup instead");
  auto before = epochs_before_last(parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto& part = parts[i];
    std::string name{part.row->name};
    bool last = i + 1 == parts.size();
    if (!last && name == plateau_name)
      return bad("--schedule: plateau goes on until the run ends, so nothing can follow it: put it "
                 "last");
    if (!last && !part.epochs)
      return bad("--schedule: " + name + " needs its length, because "
                 + std::string{parts[i + 1].row->name} + " follows it: write " + name
                 + ":epochs=N");
    if (last && part.epochs && !part.row->ends)
      return bad("--schedule: " + name + " goes on until the run ends: leave out its epochs");
    if (last && part.row->ends && !part.epochs) {
      if (total_epochs == 0)
        return bad("--schedule " + name + " needs its length: write " + name
                   + ":epochs=N, or set --epochs");
      if (parts.size() > 1 && warmup_epochs + before >= total_epochs)
        return bad("--schedule: before " + name + ", " + std::to_string(warmup_epochs + before)
                   + " epochs are taken, and --epochs is only " + std::to_string(total_epochs));
      part.epochs = total_epochs - std::min(total_epochs, warmup_epochs + before);
    }
    WAGGLE_TRY(fits, check_part(part, peak));
  }
  return lr_schedule{std::move(parts), peak, warmup_epochs};
}

std::string agreed_text(std::vector<schedule_part> parts, std::uint64_t warmup_epochs,
                        std::uint64_t total_epochs) {
  if (!parts.empty() && parts.back().epochs
      && warmup_epochs + epochs_before_last(parts) + *parts.back().epochs == total_epochs)
    parts.back().epochs.reset();
  return text_of(parts);
}

std::string schedule_help() {
  std::string all;
  for (const auto& row : schedule_table()) {
    std::vector<std::string> numbers;
    for (const auto& number : row.numbers)
      numbers.push_back(with_default(number));
    if (row.ends)
      numbers.emplace_back("epochs");
    all.append(all.empty() ? "" : "; ").append(row.name);
    if (!numbers.empty())
      all.append(" (").append(joined(numbers, ", ")).append(")");
    all.append(": ").append(row.help);
  }
  return all;
}

} // namespace waggle
