#include "runtime/net/socket_tuning.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

// Not netinet/tcp.h: its tcp_info lacks the fields that we need.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "runtime/core/bytes.hpp"
#include "runtime/net/narrow_paths.hpp"

namespace waggle::net {

namespace {

/// Limits the bytes that the kernel holds but has not sent: a control frame waits for them, too.
constexpr std::size_t unsent_bytes_min = 64_KiB;

bool set_congestion(int socket, const std::string& name) {
  return ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size()))
         == 0;
}

/// Nothing: this kernel does not report the first `bytes` bytes of it.
std::optional<tcp_info> info_of(int socket, std::size_t bytes) {
  tcp_info info{};
  socklen_t size = sizeof info;
  bool known = ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && size >= bytes;
  return known ? std::optional{info} : std::nullopt;
}

} // namespace

std::chrono::microseconds round_trip_of(int socket) {
  auto info = info_of(socket, offsetof(tcp_info, tcpi_min_rtt) + sizeof(tcp_info::tcpi_min_rtt));
  return std::chrono::microseconds{
    info && info->tcpi_min_rtt != ~std::uint32_t{0} ? info->tcpi_min_rtt : 0};
}

bool loss_watch::update(const sample& now) {
  if (findings_ >= findings_min)
    return true;
  if (!last_) {
    last_ = now;
    return false;
  }
  auto sent = now.sent - last_->sent;
  if (sent < packets_min)
    return false; // the next call counts from the same sample
  auto lost = now.retransmitted - last_->retransmitted;
  last_ = now;
  bool no_queue = now.rtt < now.rtt_min + now.rtt_min / 4 + std::chrono::milliseconds{2};
  if (lost >= loss_min * sent && lost > 0 && no_queue)
    ++findings_;
  return findings_ >= findings_min;
}

void socket_tuning::begin(int socket) {
  limit_unsent(socket, unsent_bytes_min);
  watching_ = congestion_ == "auto";
  if (watching_)
    set_congestion(socket, "cubic");
  else if (!congestion_.empty())
    set_congestion(socket, congestion_);
}

void socket_tuning::follow(int socket, std::size_t slice_bytes, steady_time now) {
  limit_unsent(socket, std::max(slice_bytes, unsent_bytes_min));
  if (!watching_ || now - looked_ < loss_watch::pause)
    return;
  looked_ = now;
  auto info =
    info_of(socket, offsetof(tcp_info, tcpi_data_segs_out) + sizeof(tcp_info::tcpi_data_segs_out));
  bool is_lossy = info
                  && losses_.update({info->tcpi_total_retrans, info->tcpi_data_segs_out,
                                     std::chrono::microseconds{info->tcpi_rtt},
                                     std::chrono::microseconds{info->tcpi_min_rtt}});
  watching_ = info && !is_lossy;
  if (is_lossy)
    set_congestion(socket, "bbr");
}

bool socket_tuning::stuck(int socket) {
  auto info = info_of(socket, 0);
  return info && info->tcpi_unacked > 0 && info->tcpi_backoff > 0
         && info->tcpi_snd_mss > narrow_paths::segment_bytes;
}

void socket_tuning::use_small_segments(int socket) {
  auto value = narrow_paths::segment_bytes;
  ::setsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &value, sizeof value);
}

void socket_tuning::limit_unsent(int socket, std::size_t bytes) {
  if (bytes == std::exchange(unsent_max_, bytes))
    return;
  auto value = static_cast<int>(bytes);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, sizeof value);
}

} // namespace waggle::net
