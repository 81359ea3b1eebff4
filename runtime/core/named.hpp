#pragma once

#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

// For tables whose rows have a `name`: codecs, aggregators, models, …. A table holds rows, or
// pointers to rows that are defined in the files of what they describe.
namespace waggle {

template <class Row>
constexpr const Row& as_row(const Row& row) {
  return row;
}
template <class Row>
constexpr const Row& as_row(const Row* row) {
  return *row;
}

/// The row with this name; null if there is none.
template <class Table>
constexpr auto find_named(const Table& table, std::string_view name)
  -> decltype(&as_row(*std::begin(table))) {
  for (const auto& entry : table)
    if (as_row(entry).name == name)
      return &as_row(entry);
  return nullptr;
}

/// The rows for which a member is true.
template <class Table, class Member>
auto selected(const Table& table, Member member) {
  std::vector<decltype(&as_row(*std::begin(table)))> rows;
  for (const auto& entry : table)
    if (std::invoke(member, as_row(entry)))
      rows.push_back(&as_row(entry));
  return rows;
}

/// The names, in order.
template <class Table>
std::vector<std::string> names_in(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table)
    names.emplace_back(as_row(entry).name);
  return names;
}

/// "a, b or c".
inline std::string joined(const std::vector<std::string>& words, std::string_view last) {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i)
    all.append(i == 0 ? "" : i + 1 == words.size() ? last : ", ").append(words[i]);
  return all;
}

/// The names: "a, b or c".
template <class Table>
std::string listed(const Table& table, std::string_view last = " or ") {
  return joined(names_in(table), last);
}

/// The same for a help text: "a (a's note), b or c".
template <class Table>
std::string listed_with_notes(const Table& table, std::string_view last = " or ") {
  auto words = names_in(table);
  std::size_t i = 0;
  for (const auto& entry : table) {
    if (const auto& note = as_row(entry).note; !note.empty())
      words[i].append(" (").append(note).append(")");
    ++i;
  }
  return joined(words, last);
}

} // namespace waggle
