#pragma once

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "runtime/config/options.hpp"

namespace waggle {

inline settings flags(const std::map<std::string, std::string>& values) {
  settings found;
  for (const auto& [name, value] : values)
    found[name] = {value, "--" + name};
  return found;
}

/// Why these flags are refused; empty if they are accepted.
inline std::string refusal(const settings& given) {
  auto options = resolve({}, {}, given);
  if (options)
    return {};
  EXPECT_EQ(options.error().code, ec::bad_config);
  EXPECT_EQ(options.error().detail.find('\n'), std::string::npos) << "more than one sentence";
  return options.error().detail;
}
inline std::string refusal(const std::map<std::string, std::string>& values) {
  return refusal(flags(values));
}

} // namespace waggle
