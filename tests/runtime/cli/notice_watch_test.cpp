#include "runtime/cli/notice_watch.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

result<net::http_response> status_of(unsigned number) {
  net::http_response answer{.status = number};
  return answer;
}

TEST(NoticePage, AnAnswerIsTheNotice) {
  EXPECT_TRUE(notice_page::is_notice(status_of(200)));
  EXPECT_FALSE(notice_page::is_notice(status_of(404)));
  EXPECT_FALSE(notice_page::is_notice(failure{ec::unreachable, "nobody there"}));
}

TEST(NoticePage, OfWhichNobodyKnowsWarnsOnce) {
  notice_page page;
  EXPECT_FALSE(page.warning("http://a/", status_of(404)));
  EXPECT_FALSE(page.warning("http://a/", status_of(200)));
  auto warning = page.warning("http://a/", failure{ec::unreachable, "nobody there"});
  ASSERT_TRUE(warning);
  EXPECT_NE(warning->find("http://a/"), std::string::npos);
  EXPECT_NE(warning->find("nobody there"), std::string::npos);
  EXPECT_FALSE(page.warning("http://a/", failure{ec::timeout, "silent"}));
  EXPECT_FALSE(page.warning("http://a/", status_of(401)));
}

TEST(NoticePage, ThatWantsMoreThanAnAddressIsNamed) {
  notice_page page;
  auto warning = page.warning("http://a/", status_of(401));
  ASSERT_TRUE(warning);
  EXPECT_NE(warning->find("status 401"), std::string::npos);
}

} // namespace
} // namespace waggle
