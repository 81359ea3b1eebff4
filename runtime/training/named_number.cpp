#include "runtime/training/named_number.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "runtime/core/named.hpp"
#include "runtime/core/nearest.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

using form = named_number::form;

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' '))
    text.remove_prefix(1);
  while (text.ends_with(' '))
    text.remove_suffix(1);
  return text;
}

/// "every of step".
std::string name_of(std::string_view owner, std::string_view number) {
  return std::string{number} + " of " + std::string{owner};
}

result<double> read_one(std::string_view owner, const named_number& of, std::string_view text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  auto gives = "gives " + name_of(owner, of.name) + " the value '" + std::string{text} + "', ";
  auto unless = of.initial ? "; the default is " + shortest_text(*of.initial) : std::string{};
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return bad(gives + "which is no finite number" + unless);
  if (value < of.low || value > of.high)
    return bad(gives + "which must lie between " + shortest_text(of.low) + " and "
               + shortest_text(of.high) + unless);
  if (of.what != form::real && value != std::floor(value))
    return bad(gives + "which must be a whole number" + unless);
  return value;
}

} // namespace

std::vector<std::string_view> pieces_of(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    auto at = text.find(separator);
    pieces.push_back(trimmed(text.substr(0, at)));
    if (at == std::string_view::npos)
      return pieces;
    text.remove_prefix(at + 1);
  }
}

result<written_numbers> read_numbers(std::string_view owner, const std::vector<std::string>& names,
                                     std::string_view text) {
  written_numbers found;
  for (auto setting : pieces_of(text, ',')) {
    auto equals = setting.find('=');
    auto name = setting.substr(0, equals);
    if (std::find(names.begin(), names.end(), name) == names.end())
      return bad("gives " + std::string{owner} + " the unknown number '" + std::string{name}
                 + "': it takes " + (names.empty() ? "none" : joined(names, " and "))
                 + (names.empty() ? "" : "; the nearest is " + nearest(name, names)));
    if (equals == std::string_view::npos)
      return bad("gives " + name_of(owner, name) + " no value: write " + std::string{name} + "=N");
    if (!found.emplace(name, setting.substr(equals + 1)).second)
      return bad("sets " + name_of(owner, name) + " twice");
  }
  return found;
}

result<std::vector<double>> value_of(std::string_view owner, const named_number& of,
                                     const written_numbers& written) {
  auto found = written.find(of.name);
  if (found == written.end() && !of.initial)
    return bad("leaves out " + name_of(owner, of.name) + ": write " + std::string{owner} + ":"
               + std::string{of.name} + (of.what == form::list ? "=30+60" : "=N"));
  if (found == written.end())
    return std::vector<double>{*of.initial};
  std::vector<double> all;
  for (auto text :
       of.what == form::list ? pieces_of(found->second, '+') : std::vector{found->second}) {
    WAGGLE_TRY(value, read_one(owner, of, text));
    all.push_back(*value);
  }
  std::sort(all.begin(), all.end()); // the order of a list has no meaning
  return all;
}

std::string shortest_text(double value) {
  char text[64];
  auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

std::string with_default(const named_number& number) {
  std::string all{number.name};
  if (!number.initial)
    return all + (number.what == form::list ? "=30+60" : "=N");
  return fmt::format("{}={:.3g}", all, *number.initial);
}

} // namespace waggle
