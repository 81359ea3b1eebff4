#include "runtime/net/local_path.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "runtime/crypto/digest.hpp"
#include "runtime/net/sockets.hpp"

namespace waggle::net {

namespace {

using boost::system::error_code;

constexpr std::size_t nonce_bytes = 32;
constexpr std::string_view name_prefix = "waggle/";
constexpr std::size_t name_bytes_max = 64;
// A visitor that sends no answer is dropped after so many later ones.
constexpr std::size_t visitors_max = 16;
// Ended links whose peers may still read our memory: each holds at most what was lent to it. The
// path of a frozen peer is dropped after so many later ones.
constexpr std::size_t retired_max = 8;
constexpr std::size_t remembered_copies = 256;

std::string random_bytes(std::size_t count) {
  std::string out(count, '\0');
  return ::getrandom(out.data(), count, 0) == static_cast<ssize_t>(count) ? out : std::string{};
}

struct abstract_address {
  explicit abstract_address(std::string_view name) {
    to.sun_family = AF_UNIX; // the first byte of the path is zero: no file
    std::memcpy(to.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&to); }

  sockaddr_un to{};
  socklen_t size = 0;
};

/// The process at the other end, if it runs as the same user, which may read our memory anyway.
/// Its id is 0 if we cannot see it.
std::optional<pid_t> our_process_at(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  bool known = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
  return known && who.uid == ::geteuid() ? std::optional{who.pid} : std::nullopt;
}
bool is_ours(int socket) {
  return our_process_at(socket).has_value();
}

/// Only a process that has a link with these ends can give it. Otherwise a peer on another host
/// could pass an offer on, and the two processes on this one would each take the other for it.
std::string answer_to(std::string_view nonce, const link_ends& of) {
  auto hash = sha256_stream{}
                .add("waggle/local/2")
                .add(nonce)
                .add(of.dialler.view())
                .add(of.acceptor.view())
                .finish();
  return std::string{hash.raw()};
}

/// Cancels the wait for its answer, which holds it.
void dismiss(boost::asio::posix::stream_descriptor& visitor) {
  error_code ignored;
  visitor.close(ignored);
}

unique_fd make_socket() {
  return unique_fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
}

} // namespace

std::string host_token() {
  std::string boot;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> boot;
  struct stat network {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &network) != 0)
    return {};
  auto text = "waggle/host/1 " + boot + " " + std::to_string(network.st_dev) + " "
              + std::to_string(network.st_ino) + " " + std::to_string(::geteuid());
  return std::string{sha256(text).raw()};
}

bool is_same_user(int socket) {
  auto process = our_process_at(socket);
  struct stat ours {};
  struct stat theirs {};
  return process && *process > 0 && ::stat("/proc/self/ns/pid", &ours) == 0
         && ::stat(("/proc/" + std::to_string(*process) + "/ns/pid").c_str(), &theirs) == 0
         && ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

// -- lending -------------------------------------------------------------------------------------

std::optional<arena_lender::loan> arena_lender::lend(const payload& body) {
  if (auto place = arena_->locate(body.data.get(), body.size))
    return loan{body, nullptr, *place};
  auto same = [](const auto& a, const auto& b) { return !a.owner_before(b) && !b.owner_before(a); };
  auto known = copies_.find(body.data.get());
  if (known != copies_.end() && known->second.bytes == body.size
      && same(known->second.original, body.data))
    if (auto copy = known->second.copy.lock()) // then a loan also holds the original
      return loan{body, copy, *arena_->locate(copy.get(), body.size)};
  std::shared_ptr<const std::byte> copy;
  if (auto block = arena_->take(body.size)) {
    std::memcpy(block.get(), body.data.get(), body.size);
    copy = std::move(block);
  }
  if (!copy)
    return std::nullopt;
  if (copies_.size() >= remembered_copies)
    std::erase_if(copies_, [](const auto& item) { return item.second.copy.expired(); });
  copies_[body.data.get()] = {body.data, body.size, copy};
  return loan{body, copy, *arena_->locate(copy.get(), body.size)};
}

// -- a path --------------------------------------------------------------------------------------

local_path::local_path(asio::io_context& io, unique_fd socket, std::shared_ptr<arena_lender> lender,
                       events told)
  : socket_(io), lender_(std::move(lender)),
    theirs_(std::make_shared<peer_memory>(unique_fd{::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0)},
                                          told.returned)),
    same_user_(is_same_user(socket.get())), told_(std::move(told)) {
  socket_.assign(socket.release());
}

void local_path::open() {
  (void)tell({word::mapped, 0, 0}, -1); // nothing yet, but we are here
  announce();
  listen();
}

bool local_path::tell(const note& what, int descriptor) {
  auto content = what;
  iovec data{&content, sizeof content};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  // These messages are few and small. A peer that does not read them gets no shared memory.
  return ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL) == sizeof content;
}

void local_path::announce() {
  const auto& arena = lender_->arena();
  for (auto count = arena.segment_count(); usable_ && announced_ < count; ++announced_) {
    auto segment = arena.segment(announced_);
    if (!tell({word::segment, 0, segment.bytes}, segment.fd))
      broken(ec::peer_lost);
  }
}

void local_path::listen() {
  socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                     [weak = weak_from_this()](const error_code& error) {
                       auto me = weak.lock();
                       if (error || !me)
                         return;
                       while (me->read_note()) {
                       }
                       if (me->socket_.is_open())
                         me->listen();
                     });
}

bool local_path::read_note() {
  note what;
  iovec data{&what, sizeof what};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_LEN(sizeof(int)); // the kernel closes further descriptors
  auto bytes = ::recvmsg(socket_.native_handle(), &message, MSG_CMSG_CLOEXEC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
    return false;
  unique_fd file;
  for (auto* part = CMSG_FIRSTHDR(&message); bytes > 0 && part != nullptr;
       part = CMSG_NXTHDR(&message, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS
        && part->cmsg_len == CMSG_LEN(sizeof(int))) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(part), sizeof received);
      file = unique_fd{received};
    }
  if (bytes <= 0) {
    // The other end no longer reads our memory.
    error_code ignored;
    socket_.close(ignored);
    lent_.clear();
    lent_bytes_ = 0;
    broken(ec::peer_lost);
    return false;
  }
  if (bytes != sizeof what || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    broken(ec::malformed);
    return true;
  }
  switch (what.what) {
    case word::segment: {
      if (!theirs_)
        return true; // sent before the peer knew that the link has ended
      auto added = file ? theirs_->add(std::move(file), what.bytes)
                        : status{failure{ec::malformed, "a segment without a file"}};
      if (!added)
        broken(added.error().code);
      else if (!tell({word::mapped, static_cast<std::uint32_t>(theirs_->segment_count()), 0}, -1))
        broken(ec::peer_lost);
      return true;
    }
    case word::mapped:
      if (what.count > announced_ || what.count < mapped_) {
        broken(ec::protocol_violation);
        return true;
      }
      mapped_ = what.count;
      if (same_user_ && told_.neighbour) {
        told_.neighbour->seen = true;
        if (what.bytes != 0)
          told_.neighbour->mutual = true;
      }
      if (!std::exchange(answered_, true) && same_user_ && theirs_)
        (void)tell({word::mapped, static_cast<std::uint32_t>(theirs_->segment_count()), 1}, -1);
      if (mapped_ > 0 && usable_ && !std::exchange(announced_usable_, true))
        told_.state(ec::none);
      return true;
  }
  broken(ec::malformed);
  return true;
}

void local_path::broken(ec why) {
  if (std::exchange(usable_, false))
    told_.state(why);
}

std::optional<memory_reference> local_path::lend(const payload& body) {
  if (!usable_ || mapped_ == 0 || lent_bytes_ + body.size > lender_->arena().bytes_max() / 2)
    return std::nullopt;
  auto loan = lender_->lend(body);
  if (!loan)
    return std::nullopt;
  if (loan->place.segment >= mapped_) {
    announce();
    return std::nullopt;
  }
  memory_reference out{loan->place.segment, static_cast<std::uint32_t>(body.size),
                       loan->place.offset, next_id_++};
  lent_bytes_ += body.size;
  lent_.emplace(out.id, std::move(*loan));
  return out;
}

void local_path::on_release(std::string_view ids) {
  for (; ids.size() >= 8; ids.remove_prefix(8)) {
    std::uint64_t id = 0;
    std::memcpy(&id, ids.data(), sizeof id);
    auto found = lent_.find(id);
    if (found == lent_.end())
      continue;
    lent_bytes_ -= found->second.original.size;
    lent_.erase(found);
  }
}

void local_path::end() {
  usable_ = false;
  told_ = {};
  theirs_.reset(); // payloads still in use hold it
}

// -- the host ------------------------------------------------------------------------------------

local_host::local_host(asio::io_context& io, std::shared_ptr<shared_arena> arena)
  : io_(io), acceptor_(io), lender_(std::make_shared<arena_lender>(std::move(arena))),
    token_(host_token()) {}

std::shared_ptr<local_host> local_host::make(asio::io_context& io,
                                             std::shared_ptr<shared_arena> arena) {
  if (!arena)
    return nullptr;
  auto host = std::shared_ptr<local_host>{new local_host{io, std::move(arena)}};
  if (host->token_.empty() || !host->bind())
    return nullptr;
  host->accept_next();
  return host;
}

bool local_host::bind() {
  auto random = random_bytes(16);
  if (random.empty())
    return false;
  name_ = std::string{name_prefix} + to_hex(as_byte_span(random));
  auto socket = make_socket();
  abstract_address address{name_};
  if (!socket || ::bind(socket.get(), address.get(), address.size) != 0
      || ::listen(socket.get(), SOMAXCONN) != 0)
    return false;
  acceptor_.assign(socket.release());
  return true;
}

void local_host::accept_next() {
  acceptor_.async_wait(
    asio::posix::stream_descriptor::wait_read, [weak = weak_from_this()](const error_code& error) {
      auto me = weak.lock();
      if (error || !me)
        return;
      auto from = accept_socket(me->acceptor_.native_handle());
      if (!from && !may_accept_next())
        return; // most likely out of descriptors: later peers get no shared memory
      if (from && is_ours(from.get())) {
        auto guest = std::make_shared<visitor>(me->io_, from.release());
        me->visitors_.push_back(guest);
        if (me->visitors_.size() > visitors_max) {
          dismiss(*me->visitors_.front());
          me->visitors_.pop_front();
        }
        guest->async_wait(
          asio::posix::stream_descriptor::wait_read, [weak, guest](const error_code& failed) {
            auto host = weak.lock();
            if (failed || !host)
              return;
            std::erase(host->visitors_, guest);
            std::array<char, digest::size + 1> said{};
            auto bytes = ::recv(guest->native_handle(), said.data(), said.size(), 0);
            if (bytes != static_cast<ssize_t>(digest::size))
              return;
            auto found = host->expected_.find(std::string{said.data(), digest::size});
            if (found == host->expected_.end())
              return;
            auto then = std::move(found->second);
            host->expected_.erase(found);
            then(unique_fd{guest->release()});
          });
      }
      me->accept_next();
    });
}

local_host::offer local_host::expect(const link_ends& of, connected then) {
  auto nonce = random_bytes(nonce_bytes);
  if (nonce.empty())
    return {};
  auto answer = answer_to(nonce, of);
  expected_.insert_or_assign(answer, std::move(then));
  return {answer, nonce + name_};
}

result<unique_fd> local_host::connect(std::string_view offer, const link_ends& of) {
  if (offer.size() <= nonce_bytes + name_prefix.size()
      || offer.size() > nonce_bytes + name_bytes_max
      || offer.substr(nonce_bytes, name_prefix.size()) != name_prefix)
    return failure{ec::malformed, "a malformed offer of shared memory"};
  auto socket = make_socket();
  abstract_address address{offer.substr(nonce_bytes)};
  if (!socket || ::connect(socket.get(), address.get(), address.size) != 0)
    return failure{ec::unreachable, std::strerror(errno)};
  if (!is_ours(socket.get()))
    return failure{ec::bad_signature, "the offered socket belongs to another user"};
  auto answer = answer_to(offer.substr(0, nonce_bytes), of);
  if (::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL)
      != static_cast<ssize_t>(answer.size()))
    return failure{ec::peer_lost, std::strerror(errno)};
  return socket;
}

std::shared_ptr<local_path> local_host::make_path(unique_fd socket, local_path::events told) {
  auto path = std::make_shared<local_path>(io_, std::move(socket), lender_, std::move(told));
  path->open();
  return path;
}

void local_host::retire(const std::shared_ptr<local_path>& path) {
  path->end();
  retired_.push_back(path);
  std::erase_if(retired_, [](const auto& each) { return !each->is_lent(); });
  if (retired_.size() > retired_max)
    retired_.pop_front();
}

void local_host::stop() {
  error_code ignored;
  acceptor_.close(ignored);
  for (const auto& guest : visitors_)
    dismiss(*guest);
  visitors_.clear();
  expected_.clear();
  retired_.clear();
}

} // namespace waggle::net
