#include "runtime/core/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace waggle {

void check_failed(const char* file, int line, const char* expression, std::string_view values) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s (%.*s)\n", file, line, expression,
               static_cast<int>(values.size()), values.data());
  std::abort();
}

} // namespace waggle
