#pragma once

#include <string_view>

namespace waggle {

/// Ends the process after printing what was checked and where. For broken invariants only: what a
/// peer, a file or a user sends is never a bug.
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               std::string_view values);

} // namespace waggle

/// An invariant of ours; `values` is a string with what a post-mortem needs.
#define WAGGLE_CHECK(expression, values)                                                           \
  do {                                                                                             \
    if (!(expression)) [[unlikely]]                                                                \
      ::waggle::check_failed(__FILE__, __LINE__, #expression, values);                             \
  } while (false)
