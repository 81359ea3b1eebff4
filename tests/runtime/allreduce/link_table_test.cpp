#include "runtime/allreduce/link_table.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

/// A link whose process shows what it is when the test says so.
class silent_link : public net::link {
public:
  [[nodiscard]] const peer_record& remote() const override { return nobody_; }
  [[nodiscard]] bool outbound() const override { return false; }
  void start(std::shared_ptr<net::link_listener>) override {}
  bool send(net::frame) override { return true; }
  void grant(std::size_t) override {}
  [[nodiscard]] std::shared_ptr<const net::neighbourhood> neighbour() const override {
    return shown;
  }
  [[nodiscard]] bool idle() const override { return true; }
  void close(failure) override {}

  const std::shared_ptr<net::neighbourhood> shown = std::make_shared<net::neighbourhood>();

private:
  peer_record nobody_;
};

TEST(LinkTable, KeepsWhatAPeerAnnouncedLastUntilItsLinksEnd) {
  link_table links;
  peer_record ann; // as a silent_link has it
  EXPECT_FALSE(links.record(ann.id).has_value());
  links.set(ann.id, std::make_shared<silent_link>());
  EXPECT_EQ(links.record(ann.id), ann);
  auto moved = ann;
  moved.addresses = {{"10.0.0.2", 7700}};
  links.set_record(moved);
  links.set(ann.id, std::make_shared<silent_link>()); // whose handshake began before
  EXPECT_EQ(links.record(ann.id), moved);
  links.erase(ann.id);
  EXPECT_FALSE(links.record(ann.id).has_value());
}

TEST(LinkTable, ANeighbourStaysOneWhileItsLinksAreReplaced) {
  link_table links;
  peer_id ann;
  EXPECT_FALSE(links.is_neighbour(ann, false));
  auto first = std::make_shared<silent_link>();
  links.set(ann, first);
  first->shown->seen = true;
  EXPECT_TRUE(links.is_neighbour(ann, false));
  EXPECT_FALSE(links.is_neighbour(ann, true));

  // Both dialled at once: here another link is in use than there.
  links.set(ann, std::make_shared<silent_link>());
  EXPECT_TRUE(links.is_neighbour(ann, false)) << "the other side may still go by the first one";
  first->shown->mutual = true; // it is not closed yet
  EXPECT_TRUE(links.is_neighbour(ann, true));
  first.reset();
  for (int i = 0; i < 3; ++i)
    links.set(ann, std::make_shared<silent_link>());
  EXPECT_TRUE(links.is_neighbour(ann, true));

  links.erase(ann); // its process may have ended
  links.set(ann, std::make_shared<silent_link>());
  EXPECT_FALSE(links.is_neighbour(ann, false));
}

} // namespace
} // namespace waggle
