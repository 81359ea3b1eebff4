#include "runtime/core/machine_use.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include <dlfcn.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace waggle {

namespace {

namespace fs = std::filesystem;

/// The number after `key` in a file of such lines.
std::optional<double> number_after(const fs::path& file, const std::string& key) {
  std::ifstream in{file};
  double value = 0;
  for (std::string word; in >> word;)
    if (word == key && in >> value)
      return value;
  return std::nullopt;
}

/// The first number of a file. "max", as of a container without a limit, is none.
std::optional<double> number_in(const fs::path& file) {
  std::ifstream in{file};
  double value = 0;
  return in >> value ? std::optional{value} : std::nullopt;
}

std::optional<double> memory_of_machine(const fs::path& root) {
  auto total = number_after(root / "proc/meminfo", "MemTotal:");
  auto free = number_after(root / "proc/meminfo", "MemAvailable:");
  if (!total || !free || !(*total > 0))
    return std::nullopt;
  return 1 - *free / *total;
}

/// Of the control group (version 2) of this process. Files that were read can be dropped any time.
std::optional<double> memory_of_container(const fs::path& root) {
  std::ifstream groups{root / "proc/self/cgroup"};
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/"))
      continue;
    auto group = root / "sys/fs/cgroup" / line.substr(4);
    auto most = number_in(group / "memory.max");
    auto used = number_in(group / "memory.current");
    if (!most || !used || !(*most > 0))
      return std::nullopt;
    auto files = number_after(group / "memory.stat", "inactive_file").value_or(0)
                 + number_after(group / "memory.stat", "active_file").value_or(0);
    return std::max(0.0, *used - files) / *most;
  }
  return std::nullopt;
}

std::optional<double> disk_of(const fs::path& folder) {
  struct statvfs is {};
  if (folder.empty() || ::statvfs(folder.c_str(), &is) != 0)
    return std::nullopt;
  auto used = static_cast<double>(is.f_blocks - is.f_bfree);
  auto all = used + static_cast<double>(is.f_bavail); // as df has it: some is for root only
  return all > 0 ? std::optional{used / all} : std::nullopt;
}

/// NVIDIA's management library, where a driver has brought it. Its functions and structures have
/// been the same since 2011 and 2013 (`_v2`).
class nvidia_gpus {
public:
  nvidia_gpus() {
    auto* library = ::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr)
      return;
    int (*begin)() = nullptr;
    bool all = find(library, "nvmlInit_v2", begin) && find(library, "nvmlDeviceGetCount_v2", count_)
               && find(library, "nvmlDeviceGetHandleByIndex_v2", gpu_)
               && find(library, "nvmlDeviceGetUtilizationRates", busy_)
               && find(library, "nvmlDeviceGetMemoryInfo", memory_);
    there_ = all && begin() == 0;
  }

  void read(machine_use& out) const {
    unsigned count = 0;
    if (!there_ || count_(&count) != 0)
      return;
    for (unsigned i = 0; i < std::min(count, 64U); ++i) {
      void* gpu = nullptr;
      percentages busy{};
      amounts memory{};
      if (gpu_(i, &gpu) != 0)
        continue;
      if (busy_(gpu, &busy) == 0)
        out.gpu = std::max(out.gpu.value_or(0), busy.gpu / 100.0);
      if (memory_(gpu, &memory) == 0 && memory.total > 0)
        out.gpu_memory =
          std::max(out.gpu_memory.value_or(0),
                   static_cast<double>(memory.used) / static_cast<double>(memory.total));
    }
  }

private:
  struct percentages {
    unsigned gpu = 0;
    unsigned memory = 0;
  };
  struct amounts {
    unsigned long long total = 0; // NOLINT(google-runtime-int): as the library has it
    unsigned long long free = 0;  // NOLINT(google-runtime-int)
    unsigned long long used = 0;  // NOLINT(google-runtime-int)
  };

  template <class Function>
  static bool find(void* library, const char* name, Function*& into) {
    into = reinterpret_cast<Function*>(::dlsym(library, name));
    return into != nullptr;
  }

  bool there_ = false;
  int (*count_)(unsigned*) = nullptr;
  int (*gpu_)(unsigned, void**) = nullptr;
  int (*busy_)(void*, percentages*) = nullptr;
  int (*memory_)(void*, amounts*) = nullptr;
};

} // namespace

machine_use read_machine(const fs::path& folder, const fs::path& root) {
  machine_use out;
  out.memory = memory_of_machine(root);
  if (auto share = memory_of_container(root))
    out.memory = std::max(out.memory.value_or(0), *share);
  out.disk = disk_of(folder);
  if (auto tasks = number_in(root / "proc/loadavg"))
    out.load = *tasks / static_cast<double>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  static const nvidia_gpus gpus;
  gpus.read(out);
  return out;
}

} // namespace waggle
