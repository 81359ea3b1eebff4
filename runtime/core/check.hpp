#pragma once

#include <string_view>

namespace waggle {

/// Ends the process after printing the expression and its place. For broken invariants only: input
/// from a peer, a file or a user is never a bug.
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               std::string_view values);

} // namespace waggle

/// An invariant; `values` is a string with the values that help to find the bug.
#define WAGGLE_CHECK(expression, values)                                                           \
  do {                                                                                             \
    if (!(expression)) [[unlikely]]                                                                \
      ::waggle::check_failed(__FILE__, __LINE__, #expression, values);                             \
  } while (false)
