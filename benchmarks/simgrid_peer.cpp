// Runs flows on a platform in SimGrid's C++ engine and prints when each finishes.
//
// Standard input, numbers separated by white space:
//   links   n, then n times:   bytes-per-second  fatpipe(0|1)
//   hosts   n
//   routes  n, then n times:   source destination k link-1 ... link-k
//   flows   n, then n times:   source destination bytes start-seconds
//   repeats n
// Standard output: "finish" and one time per flow (first repeat), "seconds" and the
// wall time of each repeat, "peak_kib" and the peak resident memory, "version".
//
// All repeats run in one engine, so that only the simulation is timed: routes are
// looked up, transfers created, simulated and waited for; building the platform
// and reading the input are not.  Flows must come in order of their starts.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

namespace sg4 = simgrid::s4u;

namespace {

struct Transfer {
  int source;
  int destination;
  std::uint64_t bytes;
  double start_s;
};

std::vector<sg4::Host*> hosts;
std::vector<Transfer> transfers;
std::vector<double> finish_s;
std::vector<double> wall_s;

void run_all(int repeats) {
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double base_s = sg4::Engine::get_clock();
    const auto begin = std::chrono::steady_clock::now();
    double now_s = 0.0;
    std::vector<sg4::CommPtr> comms;
    comms.reserve(transfers.size());
    for (const Transfer& t : transfers) {
      if (t.start_s > now_s) {
        now_s = t.start_s;
        sg4::this_actor::sleep_until(base_s + now_s);
      }
      comms.push_back(sg4::Comm::sendto_async(hosts[t.source], hosts[t.destination], t.bytes));
    }
    sg4::Comm::wait_all(comms);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    wall_s.push_back(wall.count());
    if (repeat == 0)
      for (const auto& comm : comms) finish_s.push_back(comm->get_finish_time() - base_s);
  }
}

// Peak resident memory of this program alone: getrusage also counts what was there before exec.
long peak_kib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == "VmHWM:") {
      long kib = 0;
      status >> kib;
      return kib;
    }
  return -1;
}

std::size_t count_of(const char* section) {
  std::string word;
  std::size_t n = 0;
  if (!(std::cin >> word >> n) || word != section) {
    std::fprintf(stderr, "expected section %s, found %s\n", section, word.c_str());
    std::exit(1);
  }
  return n;
}

}  // namespace

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  std::ios::sync_with_stdio(false);
  auto* zone = sg4::create_full_zone("machine");

  std::vector<const sg4::Link*> links(count_of("links"));
  for (std::size_t k = 0; k < links.size(); ++k) {
    double bandwidth = 0;
    int fatpipe = 0;
    std::cin >> bandwidth >> fatpipe;
    auto* link = zone->create_link("l" + std::to_string(k), bandwidth);
    link->set_latency(0.0);
    if (fatpipe) link->set_sharing_policy(sg4::Link::SharingPolicy::FATPIPE);
    links[k] = link->seal();
  }
  hosts.resize(count_of("hosts"));
  for (std::size_t k = 0; k < hosts.size(); ++k)
    hosts[k] = zone->create_host("h" + std::to_string(k), 1e9)->seal();
  for (std::size_t n = count_of("routes"); n > 0; --n) {
    int source = 0, destination = 0;
    std::size_t length = 0;
    std::cin >> source >> destination >> length;
    std::vector<sg4::LinkInRoute> route;
    for (std::size_t k = 0; k < length; ++k) {
      std::size_t link = 0;
      std::cin >> link;
      route.emplace_back(links[link]);
    }
    zone->add_route(hosts[source]->get_netpoint(), hosts[destination]->get_netpoint(), nullptr,
                    nullptr, route, false);
  }
  zone->seal();
  transfers.resize(count_of("flows"));
  for (Transfer& t : transfers) std::cin >> t.source >> t.destination >> t.bytes >> t.start_s;
  const int repeats = static_cast<int>(count_of("repeats"));

  sg4::Actor::create("sender", hosts[0], run_all, repeats);
  engine.run();

  std::printf("finish");
  for (double t : finish_s) std::printf(" %.17g", t);
  std::printf("\nseconds");
  for (double t : wall_s) std::printf(" %.17g", t);
  int major = 0, minor = 0, patch = 0;
  sg_version_get(&major, &minor, &patch);
  std::printf("\npeak_kib %ld\nversion %d.%d\n", peak_kib(), major, minor);
  return 0;
}
