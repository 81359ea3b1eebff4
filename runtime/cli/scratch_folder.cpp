#include "runtime/cli/scratch_folder.hpp"

#include <cstdlib>

namespace waggle {

namespace fs = std::filesystem;

result<std::unique_ptr<scratch_folder>> scratch_folder::make() {
  auto name = (fs::temp_directory_path() / "waggle-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    return failure{ec::bad_config,
                   "cannot create the folder " + name + ": set TMPDIR to a writable folder"};
  return std::unique_ptr<scratch_folder>{new scratch_folder{name}};
}

scratch_folder::~scratch_folder() {
  std::error_code ignored; // files that remain are in the temporary folder
  fs::remove_all(path_, ignored);
}

} // namespace waggle
