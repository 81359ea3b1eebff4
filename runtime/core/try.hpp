#pragma once

#include "runtime/core/result.hpp"

/// Declares `name`, a result that holds a value; a failure is returned from the function.
#define WAGGLE_TRY(name, ...)                                                                      \
  auto name = __VA_ARGS__;                                                                         \
  if (!name)                                                                                       \
  return name.error()
