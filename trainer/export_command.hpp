#pragma once

#include "runtime/cli/command_line.hpp"

namespace waggle {

/// `waggle export`.
command export_command();

} // namespace waggle
