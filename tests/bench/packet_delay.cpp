// Emulates a link with delay and loss on one machine, for kernels without sch_netem:
//
//   packet_delay QUEUE DELAY_US [LOSS [SEED]]
//
// Holds each packet of the netfilter queue QUEUE for DELAY_US microseconds, then accepts it, in
// order. Drops packets at random with probability LOSS (0.005: one in 200). Packets stay in the
// kernel and this program receives only their numbers, so a packet of 64 KiB costs as much as a
// small one. Runs until it is killed. Needs CAP_NET_ADMIN; protocol:
// linux/netfilter/nfnetlink_queue.h.

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <poll.h>
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

/// One netlink request to a netfilter queue: a header, followed by attributes.
class request {
public:
  request(int type, std::uint16_t queue) {
    auto* head = reinterpret_cast<nlmsghdr*>(bytes_.data());
    head->nlmsg_type = static_cast<std::uint16_t>((NFNL_SUBSYS_QUEUE << 8) | type);
    head->nlmsg_flags = NLM_F_REQUEST;
    auto* family = static_cast<nfgenmsg*>(NLMSG_DATA(head));
    family->nfgen_family = AF_UNSPEC;
    family->version = NFNETLINK_V0;
    family->res_id = htons(queue);
    size_ = NLMSG_LENGTH(sizeof *family);
  }

  template <class T>
  request& with(int attribute, const T& value) {
    nlattr head{static_cast<std::uint16_t>(NLA_HDRLEN + sizeof value),
                static_cast<std::uint16_t>(attribute)};
    std::memcpy(bytes_.data() + size_, &head, sizeof head);
    std::memcpy(bytes_.data() + size_ + NLA_HDRLEN, &value, sizeof value);
    size_ += NLA_ALIGN(NLA_HDRLEN + sizeof value);
    return *this;
  }

  void send(int socket) {
    reinterpret_cast<nlmsghdr*>(bytes_.data())->nlmsg_len = static_cast<std::uint32_t>(size_);
    if (::send(socket, bytes_.data(), size_, 0) < 0)
      throw std::system_error{errno, std::generic_category(), "netlink"};
  }

private:
  alignas(nlmsghdr) std::array<char, 128> bytes_{};
  std::size_t size_ = 0;
};

/// Opens a socket that receives the packet numbers of `queue`, many per call.
int bind_queue(std::uint16_t queue) {
  int socket = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
  sockaddr_nl self{};
  self.nl_family = AF_NETLINK;
  if (socket < 0 || bind(socket, reinterpret_cast<sockaddr*>(&self), sizeof self) != 0)
    throw std::system_error{errno, std::generic_category(), "netlink"};
  int room = 64 << 20;
  int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  setsockopt(socket, SOL_NETLINK, NETLINK_NO_ENOBUFS, &yes, sizeof yes);
  nfqnl_msg_config_cmd take{NFQNL_CFG_CMD_BIND, 0, htons(AF_INET)};
  request{NFQNL_MSG_CONFIG, queue}.with(NFQA_CFG_CMD, take).send(socket);
  nfqnl_msg_config_params numbers_only{0, NFQNL_COPY_META};
  // Hold segmentation-offload packets without splitting them into packets of the MTU.
  request{NFQNL_MSG_CONFIG, queue}
    .with(NFQA_CFG_PARAMS, numbers_only)
    .with(NFQA_CFG_QUEUE_MAXLEN, htonl(1U << 20U))
    .with(NFQA_CFG_FLAGS, htonl(NFQA_CFG_F_GSO))
    .with(NFQA_CFG_MASK, htonl(NFQA_CFG_F_GSO))
    .send(socket);
  return socket;
}

/// The number by which the kernel identifies the packet of `message`.
std::uint32_t packet_number(const nlmsghdr* message) {
  const char* at = static_cast<const char*>(NLMSG_DATA(message)) + NLMSG_ALIGN(sizeof(nfgenmsg));
  const char* end = reinterpret_cast<const char*>(message) + message->nlmsg_len;
  while (end - at >= NLA_HDRLEN) {
    nlattr head{};
    std::memcpy(&head, at, sizeof head);
    if (head.nla_len < NLA_HDRLEN)
      break;
    if ((head.nla_type & NLA_TYPE_MASK) == NFQA_PACKET_HDR) {
      nfqnl_msg_packet_hdr packet{};
      std::memcpy(&packet, at + NLA_HDRLEN, sizeof packet);
      return ntohl(packet.packet_id);
    }
    at += NLA_ALIGN(head.nla_len);
  }
  throw std::runtime_error{"netfilter sent a packet without a number"};
}

void run(std::uint16_t queue, std::int64_t delay_ns, double loss, std::uint64_t seed) {
  struct held {
    std::int64_t until;
    std::uint32_t number;
  };
  std::deque<held> held_packets;
  std::mt19937_64 dice{seed};
  std::uniform_real_distribution<double> chance{0, 1};
  int socket = bind_queue(queue);
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  alignas(nlmsghdr) static std::array<char, 1 << 16> bytes{};
  for (;;) {
    // Numbers increase, so one batch verdict accepts all packets up to the last one that is due.
    auto now = now_ns();
    bool any = false;
    nfqnl_msg_verdict_hdr go{htonl(NF_ACCEPT), 0};
    for (; !held_packets.empty() && held_packets.front().until <= now;
         held_packets.pop_front(), any = true)
      go.id = htonl(held_packets.front().number);
    if (any)
      request{NFQNL_MSG_VERDICT_BATCH, queue}.with(NFQA_VERDICT_HDR, go).send(socket);
    timespec wait{};
    if (!held_packets.empty()) {
      auto left = std::max<std::int64_t>(held_packets.front().until - now_ns(), 0);
      wait = {left / 1'000'000'000, left % 1'000'000'000};
    }
    pollfd ready{socket, POLLIN, 0};
    if (ppoll(&ready, 1, held_packets.empty() ? nullptr : &wait, nullptr) <= 0)
      continue;
    for (int burst = 0; burst < 64; ++burst) {
      auto got = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got <= 0)
        break;
      auto size = static_cast<unsigned>(got);
      auto due = now_ns() + delay_ns;
      for (auto* m = reinterpret_cast<nlmsghdr*>(bytes.data()); NLMSG_OK(m, size);
           m = NLMSG_NEXT(m, size)) {
        if (m->nlmsg_type == NLMSG_ERROR) {
          auto code = -static_cast<nlmsgerr*>(NLMSG_DATA(m))->error;
          if (code != 0 && code != ENOENT)
            throw std::system_error{code, std::generic_category(), "netfilter queue"};
        }
        if ((m->nlmsg_type & 0xff) != NFQNL_MSG_PACKET)
          continue;
        auto number = packet_number(m);
        if (loss > 0 && chance(dice) < loss) {
          nfqnl_msg_verdict_hdr drop{htonl(NF_DROP), htonl(number)};
          request{NFQNL_MSG_VERDICT, queue}.with(NFQA_VERDICT_HDR, drop).send(socket);
        } else {
          held_packets.push_back({due, number});
        }
      }
    }
  }
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    std::fprintf(stderr, "usage: packet_delay QUEUE DELAY_US [LOSS [SEED]]\n");
    return 2;
  }
  try {
    run(static_cast<std::uint16_t>(std::atoi(argv[1])), 1000 * std::atoll(argv[2]),
        argc > 3 ? std::atof(argv[3]) : 0, argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "packet_delay: %s\n", e.what());
    return 1;
  }
}
