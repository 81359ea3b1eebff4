// What digests and signatures cost in a round: four peers of this process over TCP and shared
// memory, without actors, in turn with and without checks.
//
//   checks_bench          prints the medians, and the processor time of all four: for 64 KiB and
//                         64 MiB of float32, and for 64 MiB in sparse2, which everybody checks

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <sys/resource.h>

#include "tests/runtime/allreduce/tcp_rounds.hpp"

namespace {

using namespace waggle;
using namespace waggle::testing;

double processor_seconds() {
  rusage r{};
  getrusage(RUSAGE_SELF, &r);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(r.ru_utime) + seconds(r.ru_stime);
}

struct mode {
  std::vector<double> rounds; // seconds
  double processor = 0;       // seconds, of all peers and rounds

  [[nodiscard]] double median_ms() {
    std::sort(rounds.begin(), rounds.end());
    return 1e3 * rounds[rounds.size() / 2];
  }
  [[nodiscard]] double processor_ms() const {
    return 1e3 * processor / static_cast<double>(rounds.size());
  }
};

/// False: a round failed.
bool measure(tcp_group& group, std::uint64_t bytes, codec_id codec, int rounds,
             std::uint32_t& number) {
  auto elements = bytes / sizeof(float);
  auto values = group.values_of(elements);
  mode checked;
  mode one_host;
  for (int i = 0; i < rounds + 4; ++i) { // the first ones fill the pools
    auto plan = group.plan_of(elements, codec, 1);
    ++number;
    std::memcpy(plan.id.bytes.data(), &number, sizeof number);
    plan.part_elements = 1U << 17U;
    plan.one_host = i % 2 == 1;
    auto began = waggle::testing::now();
    auto used = processor_seconds();
    group.begin(plan, values);
    for (auto& peer : group.peers)
      if (!peer->finish())
        return false;
    auto& into = plan.one_host ? one_host : checked;
    if (i < 4)
      continue;
    into.rounds.push_back(seconds_of(waggle::testing::now() - began));
    into.processor += processor_seconds() - used;
  }
  std::printf(
    "%8llu KiB  %-8s checked %8.3f ms (processor %8.3f)  one host %8.3f ms (processor %8.3f)\n",
    static_cast<unsigned long long>(bytes / 1024), std::string{to_string(codec)}.c_str(),
    checked.median_ms(), checked.processor_ms(), one_host.median_ms(), one_host.processor_ms());
  return true;
}

} // namespace

int main() {
  tcp_group group{1U << 30U}; // the thread that reads sums
  group.connect(4);
  std::uint32_t number = 0;
  bool good = measure(group, 64_KiB, codec_id::none, 600, number)
              && measure(group, 64_MiB, codec_id::none, 30, number)
              && measure(group, 64_MiB, codec_id::sparse2, 30, number);
  return good ? 0 : 1;
}
