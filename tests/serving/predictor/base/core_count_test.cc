#include "base/core_count.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "testing/scratch_folder.h"

namespace embershard {
namespace {

// Cgroups made up: the process is in /pods/server.
class CoreCountTest : public ::testing::Test {
 protected:
  CoreCountTest() {
    std::filesystem::create_directories(sources_.cgroups / "pods" / "server");
    Belong("0::/pods/server\n");
  }

  void Belong(const std::string& text) { std::ofstream(sources_.own_cgroup) << text; }
  void Allow(const std::string& cgroup, const std::string& text) {
    std::ofstream(sources_.cgroups / cgroup / "cpu.max") << text;
  }
  int Quota() const { return QuotaCores(sources_); }

  const testing::ScratchFolder folder_;
  const CoreSources sources_ = {.cgroups = folder_.path() / "cgroups",
                                .own_cgroup = folder_.path() / "cgroup"};
};

int Machine() {
  cpu_set_t allowed;
  EXPECT_EQ(sched_getaffinity(getpid(), sizeof(allowed), &allowed), 0);
  return CPU_COUNT(&allowed);
}

TEST_F(CoreCountTest, CountsOnlyTheCoresOfTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(getpid(), sizeof(before), &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(getpid(), sizeof(one), &one), 0);
  EXPECT_EQ(CoreCount(sources_), 1);
  ASSERT_EQ(sched_setaffinity(getpid(), sizeof(before), &before), 0);
}

TEST_F(CoreCountTest, IsTheMachinesWhereNothingIsSaid) {
  EXPECT_EQ(Quota(), 0);
  EXPECT_EQ(CoreCount(sources_), Machine());
}

TEST_F(CoreCountTest, IsTheMachinesWithoutCgroups) {
  const CoreSources nowhere = {.cgroups = folder_.path() / "a", .own_cgroup = folder_.path() / "b"};
  EXPECT_EQ(QuotaCores(nowhere), 0);
  EXPECT_EQ(CoreCount(nowhere), Machine());
}

TEST_F(CoreCountTest, MaxIsNoBound) {
  Allow("pods/server", "max 100000\n");
  EXPECT_EQ(Quota(), 0);
}

TEST_F(CoreCountTest, IsTheWholeCoresOfTheQuota) {
  Allow("pods/server", "250000 100000\n");
  EXPECT_EQ(Quota(), 2);
  Allow("pods/server", "150000 50000\n");
  EXPECT_EQ(Quota(), 3);
}

TEST_F(CoreCountTest, LessThanACoreIsOneThread) {
  Allow("pods/server", "50000 100000\n");
  EXPECT_EQ(Quota(), 1);
  EXPECT_EQ(CoreCount(sources_), 1);
}

TEST_F(CoreCountTest, NoMoreThanTheMachineHas) {
  Allow("pods/server", "1024000000 100000\n");
  EXPECT_EQ(Quota(), 10240);
  EXPECT_EQ(CoreCount(sources_), Machine());
}

TEST_F(CoreCountTest, TheTightestOfThoseAboveCounts) {
  Allow("pods/server", "800000 100000\n");
  Allow("pods", "300000 100000\n");
  EXPECT_EQ(Quota(), 3);
  Allow("pods/server", "200000 100000\n");
  EXPECT_EQ(Quota(), 2);
}

TEST_F(CoreCountTest, ACgroupThatIsNotToBeSeenIsPassedOver) {
  // In a container the path may be the host's, while only the container's own folder is visible.
  Belong("0::/kubepods.slice/pod1/cri-containerd-2\n");
  Allow(".", "200000 100000\n");
  EXPECT_EQ(Quota(), 2);
}

TEST_F(CoreCountTest, AContainersOwnNamespaceIsItsRoot) {
  Belong("0::/\n");
  Allow(".", "400000 100000\n");
  EXPECT_EQ(Quota(), 4);
}

TEST_F(CoreCountTest, LinesOfVersion1ArePassedOver) {
  Belong("12:cpu,cpuacct:/elsewhere\n0::/pods/server\n");
  Allow("pods/server", "200000 100000\n");
  EXPECT_EQ(Quota(), 2);
}

TEST_F(CoreCountTest, QuotaOfVersion1IsTheTightestOfTheOwnCgroupAndItsParents) {
  Belong("4:memory:/elsewhere\n2:cpu,cpuacct:/pods/server\n0::/\n");
  const auto allow = [this](const std::string& cgroup, const char* quota) {
    const std::filesystem::path folder = sources_.cgroups / "cpu,cpuacct" / cgroup;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "cpu.cfs_quota_us") << quota;
    std::ofstream(folder / "cpu.cfs_period_us") << "100000\n";
  };
  allow("", "-1\n");
  allow("pods/server", "500000\n");
  EXPECT_EQ(Quota(), 5);
  allow("pods", "300000\n");
  EXPECT_EQ(Quota(), 3);
  allow("elsewhere", "100000\n");
  EXPECT_EQ(Quota(), 3);
}

TEST_F(CoreCountTest, QuotaOfVersion1IsAlsoFoundUnderTheControllersName) {
  Belong("2:cpu,cpuacct:/\n");
  std::filesystem::create_directories(sources_.cgroups / "cpu");
  std::ofstream(sources_.cgroups / "cpu/cpu.cfs_quota_us") << "200000\n";
  std::ofstream(sources_.cgroups / "cpu/cpu.cfs_period_us") << "100000\n";
  EXPECT_EQ(Quota(), 2);
}

TEST_F(CoreCountTest, WhatIsNoQuotaIsPassedOver) {
  for (const char* const text : {"", "nonsense\n", "-5 100000\n", "100000\n", "100000 0\n"}) {
    Allow("pods/server", text);
    EXPECT_EQ(Quota(), 0) << text;
  }
}

}  // namespace
}  // namespace embershard
