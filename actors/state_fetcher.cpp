// fetch_state ─► donor 1: open_state ─► offer ─► get_state_chunk × window ─► … ─► hash ─► fetched_state
//                   └ lost, silent, no such state ─► donor 2, with the chunks that are here ─► …

#include "actors/state_fetcher.hpp"

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = state_fetcher_impl::stateful_pointer<state_fetcher_state>;

struct downloader {
  self_pointer self;
  const node_context& ctx;
  const fetch_config& config;
  const switchboard_actor& switchboard;

  state_fetcher_state& state() const { return self->state; }

  void next_donor() const {
    auto& st = state();
    st.download->interrupted();
    if (st.donors.empty())
      return end(st.last);
    st.donor = st.donors.front();
    st.donors.pop_front();
    auto attempt = ++st.attempt;
    self
      ->request(switchboard, config.open_timeout + 1s,
                call_peer{st.donor, wire::open_state{st.what.branch, st.what.epoch_min},
                          config.open_timeout})
      .then(
        [self = self, ctx = ctx, config = config, board = switchboard,
         attempt](const peer_answer& answer) {
          downloader d{self, ctx, config, board};
          const auto* header = std::get_if<wire::state_header>(&answer.what);
          if (attempt == self->state.attempt)
            header != nullptr ? d.on_offer(*header)
                              : d.leave_donor({ec::protocol_violation, "no header"});
        },
        [self = self, ctx = ctx, config = config, board = switchboard,
         attempt](const caf::error& why) {
          if (attempt == self->state.attempt)
            downloader{self, ctx, config, board}.leave_donor(from_caf(why));
        });
  }

  void leave_donor(const failure& why) const {
    auto& st = state();
    ctx.log->info("peer {} does not give us its state: {}", short_name(st.donor.id),
                  to_string(why));
    st.last = why;
    ++st.attempt;
    next_donor();
  }

  void on_offer(const wire::state_header& header) const {
    auto& st = state();
    if (header.epoch < st.what.epoch_min)
      return leave_donor({ec::epoch_mismatch, "its state is older than the run"});
    state_offer offer{header.epoch, header.content, header.parameters, header.bytes,
                      header.chunk_bytes};
    if (auto accepted = st.download->accept(offer); !accepted)
      return leave_donor(accepted.error());
    if (st.what.meter)
      st.what.meter->total = header.bytes;
    st.resumed = st.download->progress() > 0;
    st.heard = self->clock().now();
    self->delayed_send(self, config.chunk_timeout, check_donor{st.attempt});
    ask();
  }

  void check_deadline(std::uint64_t attempt) const {
    auto& st = state();
    if (attempt != st.attempt)
      return;
    auto silent = self->clock().now() - st.heard;
    if (silent >= config.chunk_timeout)
      return leave_donor({ec::timeout, "no chunk for too long"});
    self->delayed_send(self, config.chunk_timeout - silent, check_donor{attempt});
  }

  void ask() const {
    auto& st = state();
    // A chunk waits for those before it: what ends a download is silence, see check_deadline.
    auto patience = config.chunk_timeout * static_cast<int>(config.download.window);
    for (auto index : st.download->next()) {
      wire::get_state_chunk question{st.download->offer()->content, index};
      self->request(switchboard, patience + 1s, call_peer{st.donor, question, patience})
        .then(
          [self = self, ctx = ctx, config = config, board = switchboard,
           attempt = st.attempt](const peer_answer& answer) {
            if (attempt == self->state.attempt)
              downloader{self, ctx, config, board}.on_chunk(answer);
          },
          [self = self, ctx = ctx, config = config, board = switchboard,
           attempt = st.attempt](const caf::error& why) {
            if (attempt == self->state.attempt)
              downloader{self, ctx, config, board}.leave_donor(from_caf(why));
          });
    }
  }

  void on_chunk(const peer_answer& answer) const {
    auto& st = state();
    const auto* chunk = std::get_if<wire::state_chunk>(&answer.what);
    if (chunk == nullptr)
      return leave_donor({ec::protocol_violation, "no chunk"});
    if (auto taken = st.download->chunk(chunk->index, answer.body.view()); !taken)
      return leave_donor(taken.error());
    st.heard = self->clock().now();
    if (st.what.meter)
      st.what.meter->received += answer.body.size;
    ctx.metrics->count_state_bytes("in", static_cast<double>(answer.body.size));
    ctx.metrics->set_state_download_progress(st.download->progress());
    if (!st.download->complete())
      return ask();
    auto offer = *st.download->offer();
    auto whole = st.download->finish();
    if (!whole) {
      ctx.metrics->count_state_download("hash_mismatch", 0);
      return leave_donor(whole.error());
    }
    auto seconds = seconds_of(self->clock().now() - st.began);
    ctx.metrics->count_state_download(st.resumed ? "resumed" : "complete", seconds);
    ctx.log->info("downloaded the state of epoch {} ({} bytes) from peer {}", offer.epoch.value(),
                  offer.bytes, short_name(st.donor.id));
    ++st.attempt;
    st.promise.deliver(
      fetched_state{offer.epoch, offer.parameters, *whole, st.donor.id, offer.content});
    self->quit();
  }

  void end(const failure& why) const {
    auto& st = state();
    ++st.attempt;
    ctx.metrics->count_state_download("failed", seconds_of(self->clock().now() - st.began));
    st.promise.deliver(to_caf(why));
    self->quit();
  }
};

} // namespace

state_fetcher_impl::behavior_type state_fetcher(self_pointer self, node_context ctx,
                                                fetch_config config,
                                                switchboard_actor switchboard) {
  end_on_exception(self, ctx);
  self->set_down_handler([self](const caf::down_msg&) { self->quit(); });
  return {
    [self, ctx, config, switchboard](const fetch_state& msg) -> caf::result<fetched_state> {
      auto& st = self->state;
      if (std::exchange(st.busy, true))
        return to_caf(ec::overloaded, "one download at a time");
      self->monitor(self->current_sender()); // nobody would want the state
      st.what = msg;
      st.donors = {msg.donors.begin(), msg.donors.end()};
      st.began = self->clock().now();
      st.download.emplace(config.download, ctx.make_store);
      auto promise = self->make_response_promise<fetched_state>();
      st.promise = promise;
      self->delayed_send(self, msg.deadline, fetch_expired{});
      downloader{self, ctx, config, switchboard}.next_donor();
      return promise;
    },
    [self, ctx, config, switchboard](const check_donor& msg) {
      downloader{self, ctx, config, switchboard}.check_deadline(msg.attempt);
    },
    [self, ctx, config, switchboard](fetch_expired) {
      downloader{self, ctx, config, switchboard}.end(
        {ec::timeout, "the download did not end by its deadline"});
    },
  };
}

} // namespace waggle
