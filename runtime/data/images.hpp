#pragma once

#include "runtime/data/data_set.hpp"

namespace waggle {

/// The files of images and of labels of one half of a set, in this order. Fail with ec::bad_config
/// and a sentence if one is missing.
result<data_files> idx_files(const std::filesystem::path& folder, data_role role);
result<data_files> cifar_files(const std::filesystem::path& folder, data_role role);

/// Open what these found. Items are labels and values; all labels are checked. Fail with
/// ec::bad_config and a sentence.
result<std::shared_ptr<const sample_data>>
open_idx(const data_files& files, const std::string& option, std::int64_t classes);
result<std::shared_ptr<const sample_data>>
open_cifar(const data_files& files, const std::string& option, std::int64_t classes);

} // namespace waggle
