#pragma once

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "runtime/config/options.hpp"

namespace waggle::testing {

/// The defaults, with the given options as a user writes them.
inline run_options options_with(const std::map<std::string, std::string>& values) {
  run_options o;
  for (const auto& [name, value] : values) {
    const auto* option = find_option(name);
    if (option == nullptr) {
      ADD_FAILURE() << "there is no option " << name;
      continue;
    }
    auto set = option->set(o, value);
    EXPECT_TRUE(set.ok()) << name << ": " << set.error().detail;
    o.given[name] = value;
  }
  return o;
}

} // namespace waggle::testing
