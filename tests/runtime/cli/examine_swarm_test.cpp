#include "runtime/cli/examine_swarm.hpp"

#include <future>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace waggle {
namespace {

/// The first byte that a member gets which is asked, and answers nothing.
char first_byte(bool encrypted) {
  int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  EXPECT_EQ(::bind(listener, address, size), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  EXPECT_EQ(::getsockname(listener, address, &size), 0);
  std::vector<asked_member> members(1);
  members[0].addresses.push_back({"127.0.0.1", ntohs(at.sin_port)});
  auto asked = std::async(std::launch::async,
                          [&] { return ask_members(members, 0, std::nullopt, encrypted); });
  int client = ::accept(listener, nullptr, nullptr);
  char byte = 0;
  EXPECT_EQ(::recv(client, &byte, 1, 0), 1);
  ::close(client);
  ::close(listener);
  EXPECT_EQ(asked.get(), std::vector<std::string>(1));
  EXPECT_TRUE(members[0].status.empty());
  return byte;
}

TEST(ExamineSwarm, AsksMembersAsTheFirstWasAsked) {
  EXPECT_EQ(first_byte(false), 'G') << "GET";
  EXPECT_EQ(first_byte(true), 22) << "the type of a TLS handshake record";
}

} // namespace
} // namespace waggle
