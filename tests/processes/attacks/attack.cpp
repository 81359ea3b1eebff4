// waggle-attack NAME HOST:PORT RUN [SECONDS [LINKS [MB_PER_SECOND [LIST]]]]
//
// RUN is the run's name or the text of its key ("key:…", as `waggle invite` writes it), LIST a
// file. Plays one attack (or `pings`: measures how long honest pings take) and prints what came of
// it as a line of JSON. Without arguments: lists the attacks.

#include <cstdio>

#include "runtime/core/random.hpp"
#include "runtime/crypto/member_list.hpp"
#include "tests/processes/attacks/attacks.hpp"

int main(int count, char** words) {
  using namespace waggle;
  if (count < 4) {
    std::printf("pings\n");
    for (const auto& each : attacks::all())
      std::printf("%s\n", each.name.c_str());
    return 2;
  }
  auto where = parse_endpoint(words[2]);
  if (!where) {
    std::fprintf(stderr, "%s\n", where.error().detail.c_str());
    return 2;
  }
  attacks::target at{*where, words[3]};
  if (count > 4)
    at.duration = std::chrono::seconds{std::atoi(words[4])};
  if (count > 5)
    at.links = static_cast<std::size_t>(std::atoi(words[5]));
  if (count > 6)
    at.bytes_per_second = 1e6 * std::atof(words[6]);
  if (count > 7) {
    auto list = read_list(words[7]);
    if (!list) {
      std::fprintf(stderr, "%s\n", list.error().detail.c_str());
      return 2;
    }
    at.list = *list;
  }
  std::string name = words[1];
  if (name == "pings") {
    // From another address of this host, as an honest peer would have another one than attackers.
    attacks::stranger honest{at.where, at.run, entropy_seed() | 1U, "127.0.0.3"};
    if (!honest.join()) {
      std::fprintf(stderr, "%s does not let an honest peer join: %s\n", words[2],
                   honest.why().c_str());
      return 1;
    }
    auto seen = attacks::measure_pings(at, std::move(honest));
    std::printf("{\"median_ms\":%.2f,\"worst_ms\":%.2f,\"lost\":%llu}\n", seen.median, seen.worst,
                static_cast<unsigned long long>(seen.lost));
    return 0;
  }
  for (const auto& each : attacks::all())
    if (each.name == name) {
      auto done = each.play(at);
      std::printf("{\"attack\":\"%s\",\"bytes\":%llu,\"messages\":%llu,\"refused\":%llu}\n",
                  name.c_str(), static_cast<unsigned long long>(done.bytes_sent),
                  static_cast<unsigned long long>(done.messages),
                  static_cast<unsigned long long>(done.refused));
      return 0;
    }
  std::fprintf(stderr, "there is no attack called %s\n", name.c_str());
  return 2;
}
