#pragma once

// Our error codes as CAF errors, and back.

#include <string>

#include <caf/atom.hpp>
#include <caf/error.hpp>
#include <caf/make_message.hpp>

#include "runtime/core/error.hpp"

namespace waggle {

constexpr auto error_category = caf::atom("waggle");

/// `why` as a CAF error: code and detail survive.
inline caf::error to_caf(const failure& why) {
  return caf::error{static_cast<std::uint8_t>(why.code), error_category,
                    caf::make_message(why.detail)};
}
inline caf::error to_caf(ec code, std::string detail = {}) {
  return to_caf(failure{code, std::move(detail)});
}

/// The failure that a CAF error stands for. CAF's own request timeout becomes ec::timeout, a
/// receiver that has ended ec::shutting_down, any other error ec::internal with CAF's text.
failure from_caf(const caf::error& why);

} // namespace waggle
