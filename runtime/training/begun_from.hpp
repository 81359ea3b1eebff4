#pragma once

#include <memory>
#include <string>

#include "runtime/core/disk.hpp"
#include "runtime/core/result.hpp"
#include "runtime/training/learner_factory.hpp"

namespace waggle {

/// Makes learners that begin with the parameters and buffers of a checkpoint of the same model,
/// whatever strategy and optimizer wrote it; with an empty `file`: `make` itself. Of an anchor,
/// these are its parameters. Statistics, schedules, epoch and history begin anew.
///
/// The learners fail with ec::bad_config if the file cannot be read, is damaged, or is of a model
/// with other parameters.
learner_factory begun_from(learner_factory make, const std::string& file,
                           std::shared_ptr<disk> files);

} // namespace waggle
