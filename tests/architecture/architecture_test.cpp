// Reads every #include of the source tree and fails if one violates the table of allowed
// dependencies below. Nothing includes upward: runtime ← actors ← trainer.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/version.hpp"

namespace waggle {
namespace {

namespace fs = std::filesystem;

const fs::path root{WAGGLE_SOURCE_DIR};

struct include {
  std::string file; // relative to the root
  int line = 0;
  std::string what;
};

std::vector<include> includes_under(const std::string& folder) {
  std::vector<include> out;
  for (const auto& entry : fs::recursive_directory_iterator{root / folder}) {
    auto extension = entry.path().extension();
    if (extension != ".hpp" && extension != ".cpp")
      continue;
    std::ifstream file{entry.path()};
    std::string line;
    for (int n = 1; std::getline(file, line); ++n) {
      auto begin = line.find_first_not_of(" \t");
      if (begin == std::string::npos || line[begin] != '#'
          || line.find("include") == std::string::npos)
        continue;
      auto open = line.find_first_of("\"<", begin);
      auto close = open == std::string::npos ? open : line.find_first_of("\">", open + 1);
      if (close == std::string::npos)
        continue;
      out.push_back({fs::relative(entry.path(), root).generic_string(), n,
                     line.substr(open + 1, close - open - 1)});
    }
  }
  return out;
}

bool begins(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}

/// "runtime/dht/lookup.cpp" → "dht".
std::string runtime_folder(const std::string& path) {
  auto rest = path.substr(std::string{"runtime/"}.size());
  return rest.substr(0, rest.find('/'));
}

/// The folders of runtime/ that each folder may include besides itself. Folders of logic do not
/// depend on each other, except that averaging encodes parts, and training counts what a group has
/// reported.
const std::map<std::string, std::set<std::string>> allowed{
  {"core", {}},
  {"crypto", {"core"}},
  {"agreement", {"core", "crypto"}},
  {"data", {"core", "crypto", "agreement"}},
  {"codec", {"core"}},
  {"dht", {"core", "crypto"}},
  {"progress", {"core", "crypto"}},
  {"matchmaking", {"core", "crypto", "codec", "dht", "averaging"}},
  {"training", {"core", "crypto", "codec", "progress"}},
  {"state", {"core", "crypto"}},
  {"averaging", {"core", "crypto", "codec"}},
  {"wire", {"core", "crypto", "codec", "dht", "progress", "matchmaking", "averaging"}},
  {"net", {"core", "crypto", "agreement"}},
  {"allreduce", {"core", "codec", "averaging", "wire", "net"}},
  {"metrics", {"core"}},
  {"config",
   {"core", "crypto", "agreement", "data", "codec", "averaging", "matchmaking", "allreduce",
    "progress", "training"}},
  {"watch", {"core", "allreduce"}},
  {"status", {"core", "crypto", "progress", "training", "metrics", "net", "watch"}},
  {"cli",
   {"core", "crypto", "agreement", "data", "codec", "averaging", "training", "wire", "net",
    "allreduce", "watch", "status", "config"}},
};

enum class library { caf, torch, boost, protobuf, python, fmt, none };

library library_of(const std::string& what) {
  if (begins(what, "caf/"))
    return library::caf;
  if (begins(what, "torch/") || begins(what, "ATen/") || begins(what, "c10/"))
    return library::torch;
  if (begins(what, "boost/"))
    return library::boost;
  if (begins(what, "google/protobuf/")
      || (what.size() > 5 && what.substr(what.size() - 5) == ".pb.h"))
    return library::protobuf;
  if (begins(what, "pybind11/") || begins(what, "numpy/") || what == "Python.h")
    return library::python;
  if (begins(what, "fmt/") || begins(what, "spdlog/"))
    return library::fmt;
  return library::none;
}

std::string place(const include& i) {
  return i.file + ":" + std::to_string(i.line) + " includes " + i.what;
}

TEST(Architecture, FoldersOfTheRuntimeIncludeOnlyWhatStandsBelowThem) {
  for (const auto& i : includes_under("runtime")) {
    EXPECT_FALSE(begins(i.what, "actors/") || begins(i.what, "trainer/")
                 || begins(i.what, "tests/"))
      << place(i);
    auto from = runtime_folder(i.file);
    auto rules = allowed.find(from);
    ASSERT_NE(rules, allowed.end())
      << "runtime/" << from << " is new: add to this table what it may include";
    if (!begins(i.what, "runtime/"))
      continue;
    auto to = runtime_folder(i.what);
    EXPECT_TRUE(to == from || rules->second.contains(to)) << place(i);
  }
}

TEST(Architecture, ActorsDoNotKnowTheTrainer) {
  for (const auto& i : includes_under("actors"))
    EXPECT_FALSE(begins(i.what, "trainer/") || begins(i.what, "tests/")) << place(i);
}

// Floors know each other by the messages on the map (actors.hpp) only. Above them stand those that
// start and connect their actors.
TEST(Architecture, FloorsOfActorsIncludeOnlyTheMap) {
  const std::map<std::string, std::set<std::string>> floors{
    {"links", {}}, {"discovery", {}},       {"averaging", {}}, {"state", {}},
    {"watch", {}}, {"training", {"state"}}, {"(the map)", {}}};
  for (const auto& i : includes_under("actors")) {
    auto floor_of = [](const std::string& path) {
      auto rest = path.substr(std::string{"actors/"}.size());
      auto slash = rest.find('/');
      return slash == std::string::npos ? std::string{"(the map)"} : rest.substr(0, slash);
    };
    auto from = floors.find(floor_of(i.file));
    if (from == floors.end() || !begins(i.what, "actors/"))
      continue; // node, service, loop and program
    auto to = floor_of(i.what);
    EXPECT_TRUE(to == "(the map)" || to == from->first || from->second.contains(to)) << place(i);
  }
}

TEST(Architecture, OnlyTheProgramAndLoopsKnowTheCommandLine) {
  for (const auto& i : includes_under("actors")) {
    bool above = begins(i.what, "actors/program/") || begins(i.what, "runtime/cli/")
                 || begins(i.what, "runtime/config/");
    EXPECT_TRUE(!above || begins(i.file, "actors/program/") || begins(i.file, "actors/loop/"))
      << place(i);
  }
}

// What needs no actor can be tested without one.
TEST(Architecture, CodeWithoutActorsStandsInTheRuntime) {
  std::map<std::string, bool> needs_actors; // by file
  for (const auto& i : includes_under("actors")) {
    auto own = fs::path{i.file}.replace_extension(".hpp").generic_string();
    needs_actors[i.file] |= begins(i.what, "caf/") || (begins(i.what, "actors/") && i.what != own);
  }
  for (const auto& [file, needs] : needs_actors) {
    if (begins(file, "actors/program/") || begins(file, "actors/loop/")
        || begins(file, "actors/node_context."))
      continue; // node_context is what all actors of a peer share
    auto header = fs::path{file}.replace_extension(".hpp").generic_string();
    EXPECT_TRUE(needs || needs_actors[header]) << file << " belongs to runtime/";
  }
}

TEST(Architecture, ALongFileSaysWhyItIsLong) {
  constexpr std::size_t lines_max = 450;
  for (const char* top : {"runtime", "actors", "trainer"})
    for (const auto& entry : fs::recursive_directory_iterator{root / top}) {
      auto extension = entry.path().extension();
      if (extension != ".hpp" && extension != ".cpp")
        continue;
      std::ifstream file{entry.path()};
      std::string text{std::istreambuf_iterator<char>{file}, {}};
      auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
      EXPECT_TRUE(lines <= lines_max || text.find("// This file is long: ") != std::string::npos)
        << entry.path() << " has " << lines << " lines: which noun is hiding in it?";
    }
}

TEST(Architecture, EachLibraryIsUsedInItsPlaceOnly) {
  for (const char* top : {"runtime", "actors", "trainer"})
    for (const auto& i : includes_under(top)) {
      bool fine = true;
      switch (library_of(i.what)) {
        case library::caf:
          fine = !begins(i.file, "runtime/");
          break;
        case library::torch:
          fine = begins(i.file, "trainer/") && !begins(i.file, "trainer/python/");
          break;
        case library::boost:
          fine = begins(i.file, "runtime/net/") || begins(i.file, "runtime/cli/")
                 || begins(i.file, "runtime/config/");
          break;
        case library::protobuf:
          fine = begins(i.file, "runtime/wire/") || begins(i.file, "runtime/net/");
          break;
        case library::python:
          fine = begins(i.file, "trainer/python/");
          break;
        case library::fmt: // LibTorch 2 brings headers of another fmt, which hide those of spdlog's
          fine = !begins(i.file, "trainer/") || begins(i.file, "trainer/python/");
          break;
        case library::none:
          break;
      }
      EXPECT_TRUE(fine) << place(i);
    }
}

TEST(Architecture, OurHeadersAreIncludedByTheirPathFromTheRoot) {
  for (const char* top : {"runtime", "actors", "trainer"})
    for (const auto& i : includes_under(top)) {
      EXPECT_EQ(i.what.find(".."), std::string::npos) << place(i);
      if (begins(i.what, "runtime/") || begins(i.what, "actors/") || begins(i.what, "trainer/")) {
        EXPECT_TRUE(fs::exists(root / i.what)) << place(i);
      }
    }
}

// What they include of ours is installed below waggle/internal/: tests/install compiles each alone.
TEST(Architecture, PublicHeadersAreAPageAndIncludeNoLibraryButCaf) {
  constexpr int lines_max = 100;
  std::size_t headers = 0;
  for (const auto& entry : fs::recursive_directory_iterator{root / "include"})
    if (entry.path().extension() == ".hpp") {
      ++headers;
      std::ifstream file{entry.path()};
      std::string text{std::istreambuf_iterator<char>{file}, {}};
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), lines_max) << entry.path();
    }
  EXPECT_GE(headers, 7U);
  for (const auto& i : includes_under("include")) {
    bool ours = begins(i.what, "waggle/") || begins(i.what, "actors/service/")
                || begins(i.what, "actors/loop/") || begins(i.what, "runtime/")
                || i.what == "trainer/optimizer.hpp";
    bool standard = i.what.find_first_of("/.") == std::string::npos;
    bool actor = i.file == "include/waggle/control.hpp" && begins(i.what, "caf/");
    EXPECT_TRUE(ours || standard || actor) << place(i);
  }
}

TEST(Architecture, EveryHeaderIsGuarded) {
  for (const char* top : {"include", "runtime", "actors", "trainer", "examples", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator{root / top}) {
      if (entry.path().extension() != ".hpp")
        continue;
      std::ifstream file{entry.path()};
      std::string text{std::istreambuf_iterator<char>{file}, {}};
      EXPECT_NE(text.find("#pragma once"), std::string::npos) << entry.path();
    }
}

std::string content(const fs::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// All that the first group of `pattern` finds; with a second one, Suite.Name.
std::set<std::string> names_in(const std::string& text, const std::regex& pattern) {
  std::set<std::string> all;
  for (std::sregex_iterator found{text.begin(), text.end(), pattern}, end; found != end; ++found)
    all.insert((*found)[1].str() + (found->size() > 2 ? "." + (*found)[2].str() : ""));
  return all;
}

TEST(Architecture, TestsThatAReadmeNamesExist) {
  std::set<std::string> tests;
  const std::regex definition{R"(\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\))"};
  const std::regex in_python{R"(\bdef (test_\w+))"};
  for (const auto& entry : fs::recursive_directory_iterator{root / "tests"})
    if (entry.path().extension() == ".cpp")
      tests.merge(names_in(content(entry.path()), definition));
    else if (entry.path().extension() == ".py")
      tests.merge(names_in(content(entry.path()), in_python));
  for (auto all = tests; const auto& test : all)
    tests.insert(test.substr(0, test.find('.')) + ".*");
  const std::regex name{R"(`([A-Z]\w+)\.([A-Z]\w+|\*)`)"};
  const std::regex name_in_python{R"(`(test_\w+)`)"};
  std::size_t named = 0;
  for (const char* top :
       {"runtime", "actors", "trainer", "examples", "tests", "dashboards", "docs"})
    for (const auto& entry : fs::recursive_directory_iterator{root / top})
      if (entry.path().extension() == ".md")
        for (const auto& pattern : {name, name_in_python})
          for (const auto& test : names_in(content(entry.path()), pattern)) {
            ++named;
            EXPECT_TRUE(tests.contains(test)) << test << " in " << entry.path();
          }
  EXPECT_GT(named, 200U);
}

TEST(Architecture, TheVersionIsThatOfTheBuild) {
  EXPECT_STREQ(version, WAGGLE_CMAKE_VERSION);
}

} // namespace
} // namespace waggle
