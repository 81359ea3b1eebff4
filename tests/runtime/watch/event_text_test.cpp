#include "runtime/watch/event_text.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace waggle {
namespace {

std::string said(const std::string& fields) {
  return event_text(nlohmann::ordered_json::parse("{" + fields + "}"));
}

TEST(EventText, IsTheSentenceOfItsTypeWithoutWhatIsNotKnown) {
  EXPECT_EQ(said(R"("type":"peer_left","other":"1a2b3c4d5e","reason":"silent","after_s":5)"),
            "Peer 1a2b3c4d left: silent, after 5.0 s");
  EXPECT_EQ(said(R"("type":"peer_left","other":"1a2b3c4d5e")"), "Peer 1a2b3c4d left");
  EXPECT_EQ(said(R"("type":"checkpoint","epoch":7,"bytes":2000000,"outcome":"io_error: full")"),
            "Checkpoint of epoch 7: 2.0 MB, io_error: full");
  EXPECT_EQ(said(R"("type":"epoch","epoch":7,"epochs":1,"loss":2.5,"samples":64)"),
            "Epoch 7 ended, loss 2.500, 64 samples");
  EXPECT_EQ(said(R"("type":"epoch","epoch":7,"epochs":3,"loss":2.5)"),
            "3 epochs ended, the last is 7, loss 2.500");
  EXPECT_EQ(said(R"("type":"slow","other":"1a2b3c4d","text":"not any more")"),
            "Peer 1a2b3c4d is not slow any more");
  EXPECT_EQ(said(R"("type":"refused","count":5,"reason":"malformed")"),
            "Refused 5 inputs: malformed");
  EXPECT_EQ(said(R"("type":"notice","text":"raise X")"), "Raise X");
  EXPECT_EQ(
    said(R"("type":"round","round":"0011223344","kind":"gradients","epoch":3,"outcome":"shrunk",
            "duration_ms":12.3,"members":[{"peer":"aabbccddee","last_ms":7},{"peer":"ff","self":true,"last_ms":9},3])"),
    "Round 00112233 (gradients) of epoch 3 shrunk, 12 ms, 3 members, the last contribution from "
    "aabbccdd after 7.0 ms");
}

TEST(EventText, OfOddEventsIsSomething) {
  for (const auto* odd :
       {R"("type":"teleported")", R"("type":3)", R"("type":"epoch","epochs":9)",
        R"("type":"peer_left","other":{},"after_s":"x")", R"("type":"notice")",
        R"("type":"round","members":{})", R"("type":"refused","reason":"[{reason}]","count":[])"})
    EXPECT_NO_THROW(static_cast<void>(said(odd))) << odd;
}

TEST(EventText, SpansOfTimeHaveTheUnitThatSuits) {
  EXPECT_EQ(span_text(0.42), "0.4 ms");
  EXPECT_EQ(span_text(17), "17 ms");
  EXPECT_EQ(span_text(1300), "1.3 s");
  EXPECT_EQ(span_text(300'000), "5 min");
  EXPECT_EQ(span_text(8 * 3'600'000), "8.0 h");
}

} // namespace
} // namespace waggle
