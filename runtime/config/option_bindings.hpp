#pragma once

// Internal to config/: the parts of a row of the option table. A binding ties an option to the
// field of run_options that it sets.

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/options.hpp"
#include "runtime/config/values.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/nearest.hpp"

namespace waggle::option_bindings {

struct binding {
  decltype(option_spec::set) set;
  decltype(option_spec::get) get;
  decltype(option_spec::agreed) agreed_value{};
  std::vector<requirement> needs{};
  loop_use loops{};

  /// All peers of a run must have the same value.
  binding agreed() && {
    agreed_value = get;
    return std::move(*this);
  }
  /// The same, where peers compare another text than the value.
  binding agreed(decltype(option_spec::agreed) text) && {
    agreed_value = std::move(text);
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

/// `parse` returns a result of the field's value; its failure is half a sentence that follows the
/// option's name.
template <class Field, class Parse>
binding bound(Field run_options::*field, Parse parse) {
  return {[field, parse = std::move(parse)](run_options& o, std::string_view v) -> status {
            auto value = parse(v);
            if (!value)
              return value.error();
            o.*field = std::move(*value);
            return done{};
          },
          [field](const run_options& o) { return text_of(o.*field); }};
}

/// A field that is empty if the value is `word`.
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

/// An option without a default.
inline binding action(decltype(option_spec::set) set) {
  return {std::move(set), [](const run_options&) { return std::string{}; }};
}

inline binding text(std::string run_options::*field) {
  return bound(field, [](std::string_view v) -> result<std::string> {
    if (v.empty())
      return failure{ec::bad_config, "must not be empty"};
    return std::string{v};
  });
}

inline binding one_of(std::string run_options::*field, std::vector<std::string> names) {
  return bound(field, [names = std::move(names)](std::string_view v) -> result<std::string> {
    if (std::find(names.begin(), names.end(), v) != names.end())
      return std::string{v};
    return failure{ec::bad_config, "is not one of " + joined(names, ", ") + "; the nearest is "
                                     + nearest(v, names)};
  });
}

inline binding whole(std::uint64_t run_options::*field, std::uint64_t low, std::uint64_t high,
                     std::string reason) {
  return bound(field, [=](std::string_view v) -> result<std::uint64_t> {
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
inline binding whole(std::uint64_t run_options::*field) {
  return whole(field, 0, many, "");
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

inline binding real(double run_options::*field, real_bounds bounds) {
  return bound(field, [b = std::move(bounds)](std::string_view v) { return parse_bounded(v, b); });
}

inline binding yes_no(bool run_options::*field) {
  return bound(field, parse_yes_no);
}

inline binding duration(milliseconds run_options::*field, milliseconds low = 0ms,
                        std::string reason = {}) {
  return bound(field, [=](std::string_view v) -> result<milliseconds> {
    auto value = parse_duration(v);
    if (value && *value < low)
      return failure{ec::bad_config,
                     "must be at least " + std::to_string(low.count()) + "ms: " + reason};
    return value;
  });
}

/// `what`: "a file" or "a folder".
template <class Path> // std::filesystem::path, or an optional of it
binding path(Path run_options::*field, std::string what) {
  return bound(field, [=](std::string_view v) -> result<std::filesystem::path> {
    if (v.empty())
      return failure{ec::bad_config, "must name " + what};
    return absolute_path(v);
  });
}

/// A path, or one of `words`, which stand for something else.
inline binding path_or_word(std::string run_options::*field, std::vector<std::string> words = {}) {
  return bound(field, [=](std::string_view v) -> result<std::string> {
    if (v.empty())
      return failure{ec::bad_config, "must not be empty"};
    if (std::find(words.begin(), words.end(), v) != words.end())
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
    table.push_back({std::move(row.name), std::move(row.value_name), std::move(initial),
                     std::move(row.help), group, std::move(row.value.set), std::move(row.value.get),
                     std::move(row.value.agreed_value), std::move(row.value.needs),
                     std::move(row.value.loops)});
  }
}

// The files of the table, one for each group of fields in run_options.hpp.
void add_peer_options(std::vector<option_spec>& table);
void add_training_options(std::vector<option_spec>& table);
void add_data_options(std::vector<option_spec>& table);
void add_averaging_options(std::vector<option_spec>& table);
void add_command_options(std::vector<option_spec>& table);

} // namespace waggle::option_bindings
