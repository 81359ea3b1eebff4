#pragma once

#include "runtime/training/strategy.hpp"

// The rows of strategy_table, each defined in a file of its own.
namespace waggle::strategies {

extern const strategy_row collaborative;
extern const strategy_row local_updates;
extern const strategy_row decentralized;
extern const strategy_row decentralized_sgd;
extern const strategy_row decentralized_adam;
extern const strategy_row diloco;
extern const strategy_row daso;
extern const strategy_row data_parallel;

} // namespace waggle::strategies
