// Emulates a link with delay and loss on one machine, for kernels without sch_netem:
//
//   packet_delay DEVICE DELAY_US [LOSS [SEED]]
//
// Makes the TUN device DEVICE and brings it up. Holds each packet that is routed into it for
// DELAY_US microseconds, then hands it back to the kernel, which routes it on. Drops packets at
// random with probability LOSS (0.005: one in 200). Packets that the kernel has not split into
// segments stay whole, so 64 KiB cost little more than a small packet. Runs until it is killed.
// Needs CAP_NET_ADMIN.
//
// A router sends what it forwards from a device `in` through it, once, with:
//   ip route add default dev DEVICE table 71; ip rule add iif in lookup 71

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

namespace {

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

void check(bool good, const char* what) {
  if (!good)
    throw std::system_error{errno, std::generic_category(), what};
}

/// Each packet that it reads has a header in front (IFF_VNET_HDR), which says how the kernel would
/// split it; written back with it, the packet is as it was.
int open_device(const std::string& name) {
  int device = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  check(device >= 0, "/dev/net/tun");
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  check(ioctl(device, TUNSETIFF, &request) == 0, "making the device");
  check(ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) == 0, "its offloads");
  int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  check(any >= 0, "a socket");
  request.ifr_qlen = 100'000; // packets; what does not fit would be lost
  check(ioctl(any, SIOCSIFTXQLEN, &request) == 0, "its queue");
  request.ifr_flags = IFF_UP;
  check(ioctl(any, SIOCSIFFLAGS, &request) == 0, "bringing the device up");
  close(any);
  return device;
}

[[noreturn]] void run(const std::string& name, std::int64_t delay_ns, double loss,
                      std::uint64_t seed) {
  struct held {
    std::int64_t until;
    std::vector<char> packet;
  };
  std::deque<held> line;
  std::mt19937_64 dice{seed};
  std::uniform_real_distribution<double> chance{0, 1};
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  int device = open_device(name);
  std::vector<char> room(1 << 17);
  for (;;) {
    for (auto now = now_ns(); !line.empty() && line.front().until <= now; line.pop_front()) {
      const auto& packet = line.front().packet;
      // The kernel refuses a packet that it cannot route or has no memory for: it is lost, as on a
      // wire.
      [[maybe_unused]] auto sent = write(device, packet.data(), packet.size());
    }
    timespec wait{};
    if (!line.empty()) {
      auto left = std::max<std::int64_t>(line.front().until - now_ns(), 0);
      wait = {left / 1'000'000'000, left % 1'000'000'000};
    }
    pollfd ready{device, POLLIN, 0};
    if (ppoll(&ready, 1, line.empty() ? nullptr : &wait, nullptr) <= 0)
      continue;
    for (int burst = 0; burst < 64; ++burst) {
      auto size = read(device, room.data(), room.size());
      if (size <= 0)
        break;
      if (loss <= 0 || chance(dice) >= loss)
        line.push_back({now_ns() + delay_ns, {room.data(), room.data() + size}});
    }
  }
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    std::fprintf(stderr, "usage: packet_delay DEVICE DELAY_US [LOSS [SEED]]\n");
    return 2;
  }
  try {
    run(argv[1], 1000 * std::atoll(argv[2]), argc > 3 ? std::atof(argv[3]) : 0,
        argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "packet_delay: %s\n", e.what());
    return 1;
  }
}
