// What /metrics says of a peer that was just born, for promtool to check.

#include <iostream>

#include "runtime/metrics/metric_families.hpp"

int main() {
  waggle::metric_families families{std::make_shared<prometheus::Registry>(), "test"};
  std::cout << families.text();
}
