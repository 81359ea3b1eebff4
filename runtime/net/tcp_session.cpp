#include "runtime/net/tcp_session.hpp"

#include <boost/asio/post.hpp>

#include "runtime/net/host_key.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle::net {

tcp_session::tcp_session(std::shared_ptr<asio::io_context> context,
                         std::shared_ptr<byte_stream> stream, std::string early,
                         std::size_t window_bytes, std::optional<socket_tuning> tuning,
                         std::shared_ptr<const net_events> events,
                         std::shared_ptr<buffer_pool> pool, std::shared_ptr<local_host> host)
  : context_(std::move(context)), stream_(std::move(stream)), socket_(stream_->socket()),
    deadline_(socket_.get_executor()), events_(std::move(events)), pool_(std::move(pool)),
    memory_(std::move(host), events_),
    reader_(
      early, window_bytes,
      [this](const std::string& header, std::size_t bytes) { return memory_for(header, bytes); }),
    queue_({.window_bytes = window_bytes, .slices = tuning.has_value()}),
    tuning_(std::move(tuning)) {
  error_code ignored;
  socket_.set_option(tcp::no_delay{true}, ignored);
  if (tuning_)
    tuning_->begin(socket_.native_handle());
}

// -- handshake -----------------------------------------------------------------------------------

void tcp_session::run(handshake::setup setup, milliseconds timeout, link_proof::ready on_ready) {
  error_code error;
  auto own = socket_.local_endpoint(error);
  auto seen = error ? own : socket_.remote_endpoint(error);
  std::optional<socket_ends> ends;
  if (!error)
    ends = {{unmapped(own.address()).to_string(), own.port()},
            {unmapped(seen.address()).to_string(), seen.port()}};
  enqueue(frame_kind::handshake,
          proof_.begin(std::move(setup), std::move(ends), std::move(on_ready)));
  deadline_.expires_after(timeout);
  deadline_.async_wait([me = shared_from_this()](const error_code& error) {
    if (!error && me->proof_.under_way())
      me->fail({ec::timeout, "the peer did not finish the handshake"});
  });
  deliver_all();
}

void tcp_session::on_handshake(std::string_view bytes) {
  auto step = proof_.on_message(bytes);
  for (auto& message : step.send)
    enqueue(step.peer_is_open ? frame_kind::denial : frame_kind::handshake, std::move(message));
  if (step.list_follows)
    reader_.allow_handshake(list_message_bytes_max);
  if (step.clock)
    events_->clock_compared(step.clock->peer, step.clock->offset);
  if (step.why.code != ec::none) {
    // The last message tells the peer the reason; close once it is written.
    closing_ = std::move(step.why);
    return write_more();
  }
  if (!step.peer)
    return;
  auto returned = [weak = weak_from_this()] {
    auto me = weak.lock();
    if (me && !me->closed_)
      asio::post(me->socket_.get_executor(), [me] { me->write_more(); });
  };
  auto offer = memory_.begin(proof_.same_host(),
                             {proof_.peers(), outbound(), weak_from_this(), std::move(returned)});
  reader_.open();
  deadline_.cancel();
  if (!offer.empty())
    enqueue(frame_kind::offer, std::move(offer));
  proof_.end(shared_from_this());
}

// -- reading -------------------------------------------------------------------------------------

void tcp_session::start(std::shared_ptr<link_listener> listener) {
  asio::post(socket_.get_executor(),
             [me = shared_from_this(), listener = std::move(listener)]() mutable {
               if (me->closed_why_)
                 return listener->on_close(*me->closed_why_);
               me->listener_ = std::move(listener);
               me->deliver_all();
             });
}

void tcp_session::hold(bool on) {
  if (held_.exchange(on) == on || on)
    return;
  asio::post(socket_.get_executor(), [me = shared_from_this()] {
    if (!me->reading_) // otherwise what is read continues
      me->deliver_all();
  });
}

void tcp_session::read_more() {
  if (closed_ || reading_)
    return;
  if (auto bytes = reader_.long_header(); bytes > 0 && !header_room_ && listener_) {
    header_room_ = listener_->long_header(bytes);
    if (held_)
      return; // hold(false) continues here
  }
  reading_ = true;
  auto room = reader_.room();
  stream_->read(room, [me = shared_from_this()](const error_code& error, std::size_t bytes) {
    me->reading_ = false;
    if (me->closed_)
      return me->reader_.abandon_body();
    if (error)
      return me->fail(me->stream_->why(error));
    me->reader_.filled(bytes);
    ++me->reads_;
    me->measure_round_trip();
    me->deliver_all();
  });
}

void tcp_session::deliver_all() {
  while (!closed_) {
    if (held_)
      return; // hold(false) continues here
    if (proof_.under_way() && closing_)
      return; // refused: frames that the peer sent before it knows are ignored
    if (!proof_.under_way() && !listener_)
      return; // start() was not called yet: data waits in the socket's buffer
    auto seen = reader_.next();
    if (!seen.ok())
      return fail(seen.error());
    amid_body_ = reader_.amid_body();
    if (!*seen) {
      report_overhead();
      if (!held_) // whoever chose the memory for a body may hold the link, and so may the report
        read_more();
      return;
    }
    header_room_.reset(); // a header that was arriving is here
    deliver(std::move(**seen));
  }
}

std::shared_ptr<std::byte> tcp_session::memory_for(const std::string& header, std::size_t bytes) {
  auto body = listener_->body_memory(header, bytes);
  return body ? body : pool_->take(bytes);
}

void tcp_session::count(bool outbound, bool data, std::size_t bytes) {
  (outbound ? facts_.bytes_out : facts_.bytes_in).fetch_add(bytes, std::memory_order_relaxed);
  events_->transferred(outbound, data, bytes);
  if (tuning_)
    events_->carried(outbound, bytes);
}

/// Now and then, because it is a system call.
void tcp_session::measure_round_trip() {
  constexpr std::uint32_t reads_between = 256;
  if (until_measured_-- > 0)
    return;
  until_measured_ = reads_between;
  facts_.round_trip_us = round_trip_of(socket_.native_handle()).count();
}

link_facts tcp_session::facts() const {
  return {std::chrono::microseconds{facts_.round_trip_us.load()},
          facts_.bytes_in,
          facts_.bytes_out,
          memory_.bytes(),
          memory_.opened(),
          stream_->tls() != nullptr,
          reads_,
          queue_.body_bytes_written(),
          queue_.control_memory(),
          queue_.background_bytes()};
}

void tcp_session::deliver(arrival seen) {
  count(false, seen.data, seen.wire_bytes);
  note_overhead(seen);
  auto& header = seen.content.header;
  switch (seen.kind) {
    case frame_kind::handshake:
      return on_handshake(header);
    case frame_kind::denial:
      return fail(read_denial(header));
    case frame_kind::window: {
      std::uint64_t granted = 0;
      std::memcpy(&granted, header.data(), sizeof granted);
      if (granted == 0) // no peer has a reason to send it
        return fail({ec::protocol_violation, "a window update that grants nothing"});
      if (!queue_.open_window(granted))
        return fail({ec::protocol_violation, "the peer granted more than the window"});
      return write_more();
    }
    case frame_kind::offer:
      return check(memory_.on_offer(header));
    case frame_kind::reference:
      return on_reference(std::move(header));
    case frame_kind::release:
      return check(memory_.on_release(header));
    case frame_kind::opening: // part of an incomplete body
    case frame_kind::slice:
      return;
    case frame_kind::message:
      listener_->on_frame(std::move(seen.content));
  }
}

void tcp_session::on_reference(std::string header) {
  auto found = memory_.resolve(header, reader_.window());
  if (!found)
    return fail(found.error());
  auto body = std::move(*found);
  if (!listener_->zero_copy_ok(header, body.size)) {
    auto own = memory_for(header, body.size);
    std::memcpy(own.get(), body.data.get(), body.size);
    body = {std::move(own), body.size};
  }
  listener_->on_frame({std::move(header), std::move(body)});
}

/// What a message takes is known to whoever gets it.
void tcp_session::note_overhead(const arrival& seen) {
  if (seen.kind == frame_kind::message || seen.kind == frame_kind::reference
      || seen.kind == frame_kind::handshake)
    return;
  ++overhead_.frames;
  overhead_.bytes += seen.content.header.size();
}

void tcp_session::report_overhead() {
  auto seen = std::exchange(overhead_, {});
  if (seen.frames > 0)
    listener_->on_overhead(seen.frames, seen.bytes);
}

// -- writing -------------------------------------------------------------------------------------

bool tcp_session::send(frame f) {
  if (closed_ || f.header.size() > frame_header_bytes_max || f.body.size > frame_body_bytes_max)
    return false;
  auto admitted = queue_.offer(std::move(f));
  if (admitted == write_queue::admission::first)
    asio::post(socket_.get_executor(), [me = shared_from_this()] {
      me->queue_.take_offered();
      if (me->closed_)
        return me->queue_.clear();
      me->write_more();
    });
  return admitted != write_queue::admission::refused;
}

void tcp_session::enqueue(frame_kind kind, std::string header) {
  if (closed_)
    return;
  queue_.add(kind, std::move(header));
  write_more();
}

void tcp_session::write_more() {
  if (closed_ || !writing_.empty())
    return;
  memory_.write_releases(queue_); // before anything else
  queue_.next(writing_, !closing_, [this](outgoing& out) { memory_.refer(out); });
  if (writing_.empty()) {
    if (closing_)
      fail(*closing_);
    return;
  }
  std::vector<asio::const_buffer> buffers;
  buffers.reserve(3 * writing_.size());
  for (const auto& out : writing_) {
    buffers.emplace_back(out.prefix.data(), out.prefix.size());
    if (!out.content.header.empty())
      buffers.emplace_back(out.content.header.data(), out.content.header.size());
    if (!out.content.body.empty())
      buffers.emplace_back(out.content.body.data.get(), out.content.body.size);
  }
  if (tuning_)
    writing_since_ = std::chrono::steady_clock::now();
  stream_->write(std::move(buffers), [me = shared_from_this()](const error_code& error) {
    if (error) {
      me->writing_.clear(); // a closed link may be kept
      return me->fail(me->stream_->why(error));
    }
    me->on_written();
    me->write_more();
  });
}

void tcp_session::on_written() {
  steady_time::duration took{};
  if (tuning_) {
    auto now = std::chrono::steady_clock::now();
    took = now - writing_since_;
    if (!closed_)
      tuning_->follow(socket_.native_handle(), queue_.slice_bytes(), now);
  }
  queue_.written(writing_, took);
  for (const auto& out : writing_)
    count(true, out.bulk, frame_prefix::size + out.content.header.size() + out.content.body.size);
  writing_.clear();
}

void tcp_session::grant(std::size_t bytes) {
  if (closed_)
    return;
  asio::post(socket_.get_executor(), [me = shared_from_this(), bytes] {
    if (me->closed_)
      return;
    std::uint64_t amount = me->reader_.window().give_back(bytes);
    if (amount == 0)
      return;
    std::string header(8, '\0');
    std::memcpy(header.data(), &amount, sizeof amount);
    me->enqueue(frame_kind::window, std::move(header));
  });
}

// -- the end -------------------------------------------------------------------------------------

void tcp_session::close(failure why) {
  if (closed_)
    return;
  asio::post(socket_.get_executor(), [me = shared_from_this(), why = std::move(why)]() mutable {
    if (me->closed_)
      return;
    me->queue_.take_offered(); // may include a goodbye sent just before
    if (told_to_peer(why.code))
      me->queue_.add(frame_kind::denial, write_denial(why));
    me->closing_ = std::move(why);
    me->queue_.drop_bulk();
    // A peer that does not read must not delay us: what it has not read by then is lost.
    me->deadline_.expires_after(std::chrono::milliseconds{500});
    me->deadline_.async_wait([me](const error_code& error) {
      if (!error)
        me->fail(*me->closing_);
    });
    me->write_more();
  });
}

void tcp_session::check(const status& outcome) {
  if (!outcome)
    fail(outcome.error());
}

void tcp_session::fail(failure why) {
  if (closed_.exchange(true))
    return;
  deadline_.cancel();
  bool open = !proof_.under_way();
  bool stuck = open && tuning_ && socket_tuning::stuck(socket_.native_handle());
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  header_room_.reset();
  queue_.clear(); // writing_ and a body being read are released when their operations end
  if (!reading_)
    reader_.abandon_body();
  memory_.end();
  if (stuck)
    events_->ended_stuck(host());
  if (open)
    events_->closed(outbound(), why.code);
  proof_.end(why);
  if (auto listener = std::exchange(listener_, nullptr))
    listener->on_close(std::move(why));
  else
    closed_why_ = std::move(why);
}

} // namespace waggle::net
