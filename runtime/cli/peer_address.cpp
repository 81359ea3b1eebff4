#include "runtime/cli/peer_address.hpp"

#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include <unistd.h>

#include "runtime/core/bytes.hpp"
#include "runtime/core/disk.hpp"
#include "runtime/crypto/run_secret.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

/// What tells a process from all others on this machine, also from one that gets the same number
/// later or in another container. Nothing if there is no such process here.
std::optional<std::string> name_of_process(const std::string& pid) {
  std::error_code error;
  auto space = fs::read_symlink("/proc/" + pid + "/ns/pid", error);
  std::ifstream file{"/proc/" + pid + "/stat"};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  auto name_end = text.rfind(')'); // the name may contain anything
  if (error || name_end == std::string::npos)
    return std::nullopt;
  // proc(5): the start is field 22; the first one after the name is field 3.
  std::istringstream fields{text.substr(name_end + 1)};
  std::string start;
  for (int field = 3; field <= 22; ++field)
    if (!(fields >> start))
      return std::nullopt;
  return pid + " " + start + " " + space.string();
}

endpoint asked_at(const endpoint& bound) {
  if (bound.host == "0.0.0.0")
    return {"127.0.0.1", bound.port};
  if (bound.host == "::")
    return {"::1", bound.port};
  return bound;
}

/// The address in the folder's file, if its process runs here.
std::optional<endpoint> running_in(const fs::path& folder) {
  constexpr std::uint64_t bytes_max = 1024;
  auto text = make_system_disk()->read(folder / "address", bytes_max);
  if (!text)
    return std::nullopt;
  std::istringstream lines{*text};
  std::string address, process;
  if (!std::getline(lines, address) || !std::getline(lines, process))
    return std::nullopt;
  auto where = parse_endpoint(address);
  auto pid = process.substr(0, process.find(' '));
  bool number = !pid.empty() && pid.find_first_not_of("0123456789") == std::string::npos;
  if (!where || !number || name_of_process(pid) != process)
    return std::nullopt;
  return *where;
}

} // namespace

fs::path default_folder(const fs::path& home, const std::string& run_id, int number) {
  auto folder = home / run_tag(run_id);
  if (number > 1)
    folder += "-" + std::to_string(number);
  return folder;
}

result<std::unique_ptr<peer_address>> peer_address::write(const fs::path& folder,
                                                          const endpoint& bound) {
  auto process = name_of_process(std::to_string(::getpid()));
  if (!process)
    return failure{ec::io_error, "cannot read /proc"};
  auto text = to_string(asked_at(bound)) + "\n" + *process + "\n";
  auto file = folder / "address";
  if (auto written = make_system_disk()->write(file, {as_byte_span(text)}); !written)
    return written.error();
  return std::unique_ptr<peer_address>{new peer_address{std::move(file)}};
}

peer_address::~peer_address() {
  std::error_code ignored;
  fs::remove(file_, ignored);
}

result<endpoint> address_of_running_peer(const fs::path& folder) {
  std::vector<endpoint> found;
  auto look = [&found](const fs::path& in) {
    if (auto where = running_in(in))
      found.push_back(*where);
  };
  look(folder);
  std::error_code none;
  for (const auto& each : fs::directory_iterator{folder, none})
    look(each.path());
  if (found.empty())
    return failure{ec::unreachable, "no peer runs on this machine with --data-dir "
                                      + folder.string()
                                      + ": name its folder, or its address (HOST:PORT)"};
  if (found.size() > 1)
    return failure{ec::unreachable, std::to_string(found.size())
                                      + " peers run on this machine: name the folder of one with "
                                        "--data-dir, or an address, e.g. "
                                      + to_string(found.front())};
  return found.front();
}

} // namespace waggle
