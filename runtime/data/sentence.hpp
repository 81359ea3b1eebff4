#pragma once

#include <sstream>
#include <string>

namespace waggle {

/// The parts one after another, as a stream writes them.
template <class... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

} // namespace waggle
