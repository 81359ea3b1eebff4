#pragma once

// Internal to config/: the parts of a row of the option table. A binding ties an option to the
// field of run_options that it sets.

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/config/options.hpp"
#include "runtime/config/values.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/nearest.hpp"

namespace waggle::option_bindings {

struct binding : option_value {
  /// All peers of a run must have the same value.
  binding agreed() && {
    option_value::agreed = get;
    return std::move(*this);
  }
  /// The same, where peers compare another text than the value.
  binding agreed(decltype(option_value::agreed) text) && {
    option_value::agreed = std::move(text);
    return std::move(*this);
  }
  binding only_if(decltype(requirement::met) met, std::string unless) && {
    needs.push_back({std::move(met), std::move(unless)});
    return std::move(*this);
  }
  binding member_in_loops(std::string name) && {
    loops.member = std::move(name);
    return std::move(*this);
  }
  binding not_in_loops(std::string instead) && {
    loops.instead = std::move(instead);
    return std::move(*this);
  }
  binding not_in_python(std::string instead) && {
    loops.in_python = std::move(instead);
    return std::move(*this);
  }
};

// A place is where the value of an option is in run_options: a pointer to a member, or `in`.

template <class... Steps>
auto in(Steps... steps) {
  return [=](auto& options) -> auto& {
    return (options.*....*steps);
  };
}
template <class Place>
using value_at = std::remove_cvref_t<std::invoke_result_t<const Place&, run_options&>>;

/// The text of a value, which its parser reads back.
inline constexpr auto as_text = [](const auto& value) {
  using type = std::remove_cvref_t<decltype(value)>;
  if constexpr (std::is_integral_v<type> && !std::is_same_v<type, bool>)
    return text_of(static_cast<std::uint64_t>(value));
  else
    return text_of(value);
};

/// `parse` returns a result of the value; its failure is half a sentence that follows the option's
/// name. `text` is what `parse` reads back.
template <class Place, class Parse, class Text = decltype(as_text)>
binding bound(Place place, Parse parse, Text text = as_text) {
  return {[place, parse = std::move(parse)](run_options& o, std::string_view v) -> status {
            auto value = parse(v);
            if (!value)
              return value.error();
            std::invoke(place, o) = static_cast<value_at<Place>>(std::move(*value));
            return done{};
          },
          [=](const run_options& o) { return text(std::invoke(place, o)); }};
}

/// A value that is empty if the text is `word`.
template <class Field, class Parse>
binding bound_or(std::string word, std::optional<Field> run_options::*field, Parse parse) {
  auto known = bound(field, std::move(parse));
  return {[=](run_options& o, std::string_view v) -> status {
            if (v != word)
              return known.set(o, v);
            (o.*field).reset();
            return done{};
          },
          [=](const run_options& o) { return o.*field ? text_of(o.*field) : word; }};
}

inline bool is_no_auxiliary(const run_options& o) {
  return !o.auxiliary;
}

inline binding action(decltype(option_value::set) set) {
  return {std::move(set), [](const run_options&) { return std::string{}; }};
}

inline binding text(std::string run_options::*field) {
  return bound(field, [](std::string_view v) -> result<std::string> {
    if (v.empty())
      return failure{ec::bad_config, "must not be empty"};
    return std::string{v};
  });
}

inline result<std::size_t> place_of(std::string_view v, const std::vector<std::string>& names) {
  if (auto found = std::ranges::find(names, v); found != names.end())
    return static_cast<std::size_t>(found - names.begin());
  return failure{ec::bad_config,
                 "is not one of " + joined(names, ", ") + "; the nearest is " + nearest(v, names)};
}

inline binding one_of(std::string run_options::*field, std::vector<std::string> names) {
  return bound(field, [names = std::move(names)](std::string_view v) -> result<std::string> {
    auto found = place_of(v, names);
    return found ? result<std::string>{names[*found]} : found.error();
  });
}

/// One of these values, each with its name.
template <class Place>
binding choice(Place place, std::vector<std::pair<std::string, value_at<Place>>> rows) {
  std::vector<std::string> names;
  for (const auto& row : rows)
    names.push_back(row.first);
  return bound(
    place,
    [=](std::string_view v) -> result<value_at<Place>> {
      auto found = place_of(v, names);
      return found ? result<value_at<Place>>{rows[*found].second} : found.error();
    },
    [=](const value_at<Place>& value) {
      return std::ranges::find(rows, value, [](const auto& row) { return row.second; })->first;
    });
}
/// The same of a table of named rows.
template <class Place, class Table, class Field>
binding choice(Place place, const Table& table, Field of) {
  std::vector<std::pair<std::string, value_at<Place>>> rows;
  for (const auto& row : table)
    rows.emplace_back(as_row(row).name, as_row(row).*of);
  return choice(place, std::move(rows));
}

template <class Place>
binding whole(Place place, std::uint64_t low, std::uint64_t high, std::string reason) {
  return bound(place, [=](std::string_view v) -> result<std::uint64_t> {
    auto value = parse_whole(v);
    if (value && (*value < low || *value > high))
      return failure{ec::bad_config, "must lie between " + std::to_string(low) + " and "
                                       + std::to_string(high)
                                       + (reason.empty() ? "" : ": " + reason)};
    return value;
  });
}
/// Above 2^40 no number of samples or epochs is meant.
constexpr std::uint64_t many = std::uint64_t{1} << 40U;
template <class Place>
binding whole(Place place) {
  return whole(place, 0, many, "");
}

/// The bounds of a real number, and why values outside them are refused.
struct real_bounds {
  double low = 0;
  double high = 0;
  std::string why_not_below;
  std::string why_not_above;
  bool high_excluded = false;
};

inline result<double> parse_bounded(std::string_view v, const real_bounds& b) {
  auto value = parse_real(v);
  if (!value)
    return value.error();
  bool below = *value < b.low;
  if (below || *value > b.high || (b.high_excluded && *value == b.high))
    return failure{ec::bad_config,
                   (b.high_excluded ? "must lie in [" + plain(b.low) + ", " + plain(b.high) + ")"
                                    : "must lie between " + plain(b.low) + " and " + plain(b.high))
                     + ": " + (below ? b.why_not_below : b.why_not_above)};
  return value;
}

template <class Place>
binding real(Place place, real_bounds bounds) {
  return bound(place, [b = std::move(bounds)](std::string_view v) { return parse_bounded(v, b); });
}

template <class Place>
binding yes_no(Place place) {
  return bound(place, parse_yes_no);
}

template <class Place>
binding duration(Place place, milliseconds low = 0ms, std::string reason = {}) {
  return bound(place, [=](std::string_view v) -> result<milliseconds> {
    auto value = parse_duration(v);
    if (value && *value < low)
      return failure{ec::bad_config,
                     "must be at least " + std::to_string(low.count()) + "ms: " + reason};
    return value;
  });
}

/// `what`: "a file" or "a folder".
template <class Place>
binding path(Place place, std::string what) {
  return bound(place, [=](std::string_view v) -> result<std::filesystem::path> {
    if (v.empty())
      return failure{ec::bad_config, "must name " + what};
    return absolute_path(v);
  });
}

/// A path, or what the file contains if `is_inline` says so.
template <class Place>
binding path_text(Place place, bool (*is_inline)(std::string_view) = nullptr) {
  return bound(place, [=](std::string_view v) -> result<std::string> {
    if (v.empty())
      return failure{ec::bad_config, "must name a file"};
    if (is_inline != nullptr && is_inline(v))
      return std::string{v};
    auto path = absolute_path(v);
    return path ? result<std::string>{path->string()} : path.error();
  });
}

struct option_row {
  std::string name;
  std::string value_name;
  std::string help;
  binding value;
};

/// Adds these rows, which belong to one group of the help text.
inline void add_group(std::vector<option_spec>& table, const std::string& group,
                      std::vector<option_row> rows) {
  for (auto& row : rows) {
    auto initial = row.value.get(run_options{});
    table.push_back({std::move(row.value), std::move(row.name), std::move(row.value_name),
                     std::move(initial), std::move(row.help), group});
  }
}

// The files of the table, one for each group of fields in run_options.hpp.
void add_peer_options(std::vector<option_spec>& table);
void add_training_options(std::vector<option_spec>& table);
void add_data_options(std::vector<option_spec>& table);
void add_averaging_options(std::vector<option_spec>& table);
void add_command_options(std::vector<option_spec>& table);

} // namespace waggle::option_bindings
