/*
 * How the members of an averaging round agree on the contributors: a model of
 * runtime/averaging/round_protocol for Spin. Each handler below has the name of the function that it
 * models. `scripts/model.sh --help` explains how to run it. Left out: repeated loss reports, lies about
 * anything else than results and decisions, changes of the view that are proven (lying_leader.pml),
 * signatures, how the faulty reducer is found, auxiliaries, min_contributors, deadlines, data.
 *
 * N          members (3 … 5)
 * CRASHES    members that die, at any moment; their last messages on each link may be lost
 * WRONG      suspicions of live members, and timeouts that fire too early
 * LOST_LINKS how many of those also lose the messages in transit from the suspect (a broken link)
 * GIVE_UPS   members that end by themselves (a deadline)
 * TERMS      number of modelled terms; the search stops beyond them
 * SAFETY_ONLY  a result may be complete at any moment, which is more than can happen, and members may
 *            wait forever. Without it a result is complete only when all its inputs are available.
 * LATE       begins when all members hold the result and have reported that, and only the last
 *            member's messages are still in transit; it has received all others' and committed
 * LIAR       the last member is a reducer that sends different results to different members while it
 *            contributes; otherwise it follows the protocol. With FORGES above 0 it also says to so many
 *            members that the round is decided for any result. It has no proof, because honest members
 *            sign what they prepare; what the proof looks like is not modelled
 * PLANT_…    an omitted rule; the search must find a violation
 *
 * Safety: the assertion in `end_committed`. Liveness: no invalid end state. Every run is finite, because
 * faults are counted, and time passes (`timeout`) only when nothing else can happen. A run that
 * violates liveness therefore stops in a state in which some member is still in its round.
 */
#ifndef N
#define N 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef WRONG
#define WRONG 1
#endif
#ifndef LOST_LINKS
#define LOST_LINKS WRONG
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 0
#endif
#ifndef FORGES
#define FORGES 0
#endif
#ifndef TERMS
#define TERMS (4 * N)
#endif
#ifndef QUEUE
#define QUEUE (N + 3)
#endif

#define ALL ((1 << N) - 1)
#define BIT(i) (1 << (i))
#define HAS(set, i) (((set) >> (i)) & 1)
#define WITHOUT(a, b) ((a) & (ALL - (b)))

/* A term has N numbers here: each of its views has fewer participants than the one before. */
#define leader_of(number) (((number) / N) % N)
#define number_max (TERMS * N - 1)

#define SIZE(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2) + HAS(set, 3) + HAS(set, 4))
#ifdef PLANT_NO_QUORUM
#define is_quorum(set) ((set) != 0)
#else
#define is_quorum(set) (2 * SIZE(set) > N || (2 * SIZE(set) == N && HAS(set, 0)))
#endif

/* The lowest member of a set that is not empty. */
#define LOWEST(set) (HAS(set, 0) -> 0 : (HAS(set, 1) -> 1 : (HAS(set, 2) -> 2 : (HAS(set, 3) -> 3 : 4))))

mtype = { running, committed, failed, dead };
mtype = { propose, prepared, suspect, commit, abort, takeover, promise };

typedef member_state {
  mtype is;
  byte number; /* the view */
  byte contributors;
  byte participants;
  bit adopted;
  byte promised;
  bit has_prepared;
  bit complete;
  byte result;    /* the digest of the result that it holds: 1, or 2 if it differs from most */
  byte adopted_result; /* of an adopted view: the digest that its result must have */
  bit repairs;    /* waits for the bytes of the adopted result */
  bit left_all;   /* dead: all of its parts had been sent */
  byte word[N];   /* the highest view that each member reported as prepared, plus one */
  byte told[N];   /* the digest that it reported for that view */
  bit compared;
  byte lost;
  byte successor; /* the member that we expect to take over, plus one */
  byte passed_over; /* members that did not take over in this view */
  byte yields_to; /* the number of a takeover above ours; 0: none */
  /* a takeover of our own */
  byte asks;      /* its number; 0: none */
  byte waiting;
  byte answered;
  byte high;      /* the highest view in the answers */
  byte high_contributors;
  byte high_participants;
  bit high_adopted;
  byte high_result;
  byte decided;   /* contributors that a member has committed */
  byte decided_result;
  byte view_of[N];
  byte holds[N];  /* the contributors whose result each holds and has prepared; 0: none */
  byte result_of[N];
}
member_state mem[N];

/* From i to j: kind, view number, contributors, participants, promised, flags. */
chan link[N * (N - 1)] = [QUEUE] of { mtype, byte, byte, byte, byte, byte };
#define KNOWS 1
#define PREPARED 2
#define COMMITTED 4
#define ADOPTED 8
#define RESULT 16 /* times the digest */
#define FORGED 1 /* of a commit: it has no proof */

byte crashes = CRASHES;
byte wrong = WRONG;
byte lost_links = LOST_LINKS;
byte give_ups = GIVE_UPS;
#if FORGES > 0
byte forges = FORGES;
#endif
byte agreed; /* the committed contributors; 0: none yet */
byte agreed_result;

#define ME mem[m]
#define FROM_TO(i, j) link[(i) * (N - 1) + (j) - ((j) > (i))]
/* The k-th other member. */
#define OTHER(k) ((k) + ((k) >= m))
#define yields() (ME.yields_to != 0 && ME.yields_to == ME.promised)
#define lead() (leader_of(ME.number) == m && ME.promised == ME.number)

/* Messages to a member that has ended are not modelled unless it answers them. A member that failed
 * answers a takeover without a view; in this model that has the same effect as no answer. */
#define hears(j, what)                                                                             \
  (mem[j].is == running                                                                            \
   || (mem[j].is == committed && (what == propose || what == suspect || what == takeover)))

#define TELL(j, what, a, b, c, d, e)                                                               \
  if                                                                                               \
  :: hears(j, what) -> FROM_TO(m, j)!what(a, b, c, d, e)                                           \
  :: else                                                                                          \
  fi

#define TELL_ALL(set, what, a, b, c, d, e)                                                         \
  x = 0;                                                                                           \
  do                                                                                               \
  :: x < N ->                                                                                      \
     if                                                                                            \
     :: HAS(set, x) && x != m && hears(x, what) -> FROM_TO(m, x)!what(a, b, c, d, e)               \
     :: else                                                                                       \
     fi;                                                                                           \
     x++                                                                                           \
  :: else -> break                                                                                 \
  od;                                                                                              \
  x = 0

#define PROMISE_FLAGS(knows)                                                                      \
  ((knows) * (KNOWS + PREPARED * (ME.has_prepared || ME.is == committed)                           \
              + COMMITTED * (ME.is == committed) + ADOPTED * ME.adopted                            \
              + RESULT * (ME.has_prepared || ME.is == committed -> ME.result                       \
                                                                : ME.adopted_result)))

/* The first number of our next term above `floor`. */
#define ours_at(term) ((term) - (term) % N + m)
#define term_above(floor)                                                                          \
  ((ours_at((floor) / N) > (floor) / N -> ours_at((floor) / N) : ours_at((floor) / N) + N) * N)

inline forget_takeover() {
  ME.asks = 0;
  ME.waiting = 0;
  ME.answered = 0;
  ME.high = 0;
  ME.high_contributors = 0;
  ME.high_participants = 0;
  ME.high_adopted = 0;
  ME.high_result = 0;
  ME.decided = 0;
  ME.decided_result = 0;
  x = 0;
  do
  :: x < N -> ME.view_of[x] = 0; ME.holds[x] = 0; ME.result_of[x] = 0; x++
  :: else -> break
  od;
  x = 0
}

/* Resets variables that have no effect any more, so that equal states compare equal. */
inline forget_all() {
  forget_takeover();
  ME.successor = 0;
  ME.passed_over = 0;
  ME.yields_to = 0;
  ME.lost = 0;
  ME.compared = 0;
  ME.repairs = 0;
  x = 0;
  do
  :: x < N -> ME.word[x] = 0; ME.told[x] = 0; x++
  :: else -> break
  od;
  x = 0
}

inline flush(i, to) {
  do
  :: nempty(FROM_TO(i, to)) -> FROM_TO(i, to)?what(a, b, c, d, e)
  :: empty(FROM_TO(i, to)) -> break
  od;
  a = 0;
  b = 0;
  c = 0;
  d = 0;
  e = 0;
  what = 0
}

inline purge() {
  y = 0;
  do
  :: y < N && y != m -> flush(y, m); y++
  :: y < N && y == m -> y++
  :: else -> break
  od;
  y = 0
}

inline end_failed() {
  purge();
  ME.is = failed;
  ME.number = 0;
  ME.contributors = 0;
  ME.participants = 0;
  ME.adopted = 0;
  ME.promised = 0;
  ME.has_prepared = 0;
  ME.complete = 0;
  ME.result = 0;
  ME.adopted_result = 0;
  forget_all()
}

inline end_committed() {
  assert(agreed == 0 || (agreed == ME.contributors && agreed_result == ME.result));
  agreed = ME.contributors;
  agreed_result = ME.result;
  ME.is = committed;
  forget_all()
}

inline abort_all() {
  TELL_ALL(ALL, abort, ME.number, 0, 0, 0, 0);
  end_failed()
}

/* The leader notifies all members, so that another one takes over at once. */
inline give_up() {
  if
  :: leader_of(ME.promised) == m -> TELL_ALL(ME.participants, suspect, ME.number, m, 0, 0, 0)
  :: else -> y = leader_of(ME.promised); TELL(y, suspect, ME.number, m, 0, 0, 0); y = 0
  fi;
  end_failed()
}

inline enter(number_, contributors_, participants_, adopted_, result_) {
  ME.complete = ME.complete && ME.contributors == (contributors_);
  ME.adopted_result = ((adopted_) -> (result_) : 0);
  ME.repairs = ME.complete && ME.adopted_result != 0 && ME.adopted_result != ME.result;
  ME.complete = ME.complete && !ME.repairs;
  if
  :: !ME.complete -> ME.result = 0
  :: else
  fi;
  ME.compared = 0;
  ME.number = number_;
  ME.contributors = contributors_;
  ME.participants = participants_;
  ME.adopted = adopted_;
  ME.promised = ME.number;
  ME.passed_over = 0;
  ME.yields_to = 0;
  ME.has_prepared = 0;
  forget_takeover();
  do_prepare = ME.complete
}

/* The consequences of an event, in the order of the calls: recover → start_takeover →
 * finish_takeover → propose → prepare → commit_if_all_prepared. */
inline consequences() {
  if
  :: do_recover && ME.is == running ->
     alive = WITHOUT(ME.participants, ME.lost);
     if
     :: !lead() ->
        if
        :: !HAS(ME.lost, leader_of(ME.promised)) -> ME.successor = 0
        :: HAS(ME.lost, leader_of(ME.promised)) && yields()
        :: else ->
           alive = WITHOUT(alive, ME.passed_over) | BIT(m);
           next = LOWEST(alive);
           if
           :: next == m || leader_of(ME.number) == m -> do_start = 1
           :: else ->
              if
              :: ME.successor != next + 1 ->
                 ME.successor = next + 1;
                 TELL(next, suspect, ME.number, leader_of(ME.promised), 0, 0, 0)
              :: else
              fi
           fi
        fi
     :: else ->
        if
        :: alive == ME.participants
        :: else ->
           y = 1; /* have all remaining participants prepared? */
           x = 0;
           do
           :: x < N ->
              y = y && (!HAS(alive, x) || (ME.word[x] == ME.number + 1 && ME.told[x] == ME.result));
              x++
           :: else -> break
           od;
           x = 0;
           keep = ME.adopted || (y && ME.has_prepared);
           y = 0;
           if
#ifndef PLANT_SHRINK_WITHOUT_PROMISES
           :: !keep && ME.has_prepared -> do_start = 1
#endif
           :: else ->
              next_contributors = (keep -> ME.contributors : ME.contributors & alive);
              if
              :: !is_quorum(alive) || next_contributors == 0 -> abort_all()
              :: else ->
#ifdef PLANT_PASS_TERMS
                 next_number = term_above(ME.promised);
#else
                 next_number = ME.number + 1;
#endif
                 next_participants = alive;
#ifdef PLANT_FORGET_KEPT
                 next_adopted = ME.adopted;
#else
                 next_adopted = keep;
#endif
                 next_result = (ME.adopted -> ME.adopted_result : ME.result);
                 audience = ME.participants;
                 do_propose = 1
              fi
           fi
        fi
     fi
  :: else
  fi;

  if /* start_takeover */
  :: do_start && term_above(ME.promised) > number_max ->
#ifdef SAFETY_ONLY
     beyond = 1
#else
     assert(false) /* members take over from each other forever, or TERMS is too small */
#endif
  :: do_start && term_above(ME.promised) <= number_max ->
     ME.promised = term_above(ME.promised);
     ME.yields_to = 0;
     forget_takeover();
     ME.asks = ME.promised;
     ME.waiting = WITHOUT(ALL - BIT(m), ME.lost);
     TELL_ALL(ME.waiting, takeover, ME.asks, 0, 0, 0, 0);
     do_finish = ME.waiting == 0
  :: else
  fi;

  if /* finish_takeover */
  :: do_finish && ME.is == running && ME.decided != 0 ->
     TELL_ALL(ALL, commit, 0, ME.decided, ME.decided_result, 0, 0);
     if
     :: ME.decided == ME.contributors && ME.complete && ME.decided_result == ME.result ->
        end_committed()
     :: else -> end_failed()
     fi
  :: do_finish && ME.is == running && ME.decided == 0 ->
     ME.answered = ME.answered | BIT(m);
     ME.view_of[m] = ME.number;
     ME.holds[m] = (ME.has_prepared -> ME.contributors : 0);
     ME.result_of[m] = ME.result;
     if
     :: ME.number >= ME.high ->
        ME.high = ME.number;
        ME.high_contributors = ME.contributors;
        ME.high_participants = ME.participants;
        ME.high_adopted = ME.adopted;
        ME.high_result = ME.adopted_result
     :: else
     fi;
     if
     :: !is_quorum(ME.answered) -> abort_all()
     :: else ->
        y = 1; /* all of its participants that answer have prepared it */
        alive = 0; /* members that hold its result */
        known = 0; /* members that hold a result over its contributors */
        ones = 0;
        x = 0;
        do
        :: x < N ->
           if
           :: HAS(ME.answered, x) && ME.holds[x] == ME.high_contributors ->
              known = known | BIT(x);
              ones = ones | (BIT(x) * (ME.result_of[x] == 1))
           :: else
           fi;
           y = y && !(HAS(ME.answered, x) && HAS(ME.high_participants, x) &&
                         !(ME.holds[x] != 0 && ME.view_of[x] == ME.high));
           x++
        :: else -> break
        od;
        x = 0;
        next_result = (ME.high_adopted -> ME.high_result : (2 * SIZE(ones) > SIZE(known) -> 1 : 2));
        alive = (next_result == 1 -> ones : WITHOUT(known, ones));
        /* Of several digests, only one that most report can have been committed. */
        y = y && (known == alive || (2 * SIZE(alive) > SIZE(known) && is_quorum(alive)));
#ifdef PLANT_ADOPT_NOTHING
        keep = 0;
#else
        keep = ME.high_adopted || (y && alive != 0);
#endif
        y = 0;
        next_number = ME.asks;
        audience = ALL;
        next_adopted = keep;
        if
        :: keep && !is_quorum(alive) -> abort_all()
        :: keep && is_quorum(alive) && !HAS(alive, m) -> give_up()
        :: keep && is_quorum(alive) && HAS(alive, m) ->
           next_contributors = ME.high_contributors;
           next_participants = known;
           do_propose = 1
        :: else ->
           next_contributors = ME.answered;
           next_participants = ME.answered;
           do_propose = 1
        fi
     fi
  :: else
  fi;

  if /* propose */
  :: do_propose ->
     enter(next_number, next_contributors, next_participants, next_adopted, next_result);
     TELL_ALL(audience, propose, ME.number, ME.contributors, ME.participants, 0,
              ADOPTED * ME.adopted + RESULT * ME.adopted_result)
  :: else
  fi;

  if /* prepare */
  :: do_prepare && ME.is == running ->
     ME.has_prepared = 1;
     ME.word[m] = ME.number + 1;
     ME.told[m] = ME.result;
     TELL_ALL(ME.participants, prepared, ME.number, ME.result, 0, 0, 0);
     do_commit = 1
  :: else
  fi;

  if /* commit_if_all_prepared */
  :: do_commit && ME.is == running && ME.has_prepared ->
     y = 1;
     known = 0; /* members that hold the same as we do */
     x = 0;
     do
     :: x < N ->
        y = y && (!HAS(ME.participants, x) || ME.word[x] == ME.number + 1);
        known = known | (BIT(x) * (HAS(ME.participants, x) && ME.told[x] == ME.result));
        x++
     :: else -> break
     od;
     x = 0;
     if
#ifdef PLANT_COMPARE_NOTHING
     :: y && is_quorum(ME.participants) ->
#else
     :: y && is_quorum(ME.participants) && known == ME.participants ->
#endif
        if
        :: leader_of(ME.number) == m || leader_of(ME.promised) == m ->
           TELL_ALL(ME.participants, commit, ME.number, ME.contributors, ME.result, 0, 0)
        :: else
        fi;
        end_committed()
     :: y && is_quorum(ME.participants) && known != ME.participants && !ME.compared ->
        ME.compared = 1;
        /* compare_results: if most hold the same as the leader, the others adopt it; otherwise the
         * reducer is at fault (see `blames` below). */
        if
        :: 2 * SIZE(known) > SIZE(ME.participants) && lead() && !ME.adopted -> do_adopt = 1
        :: 2 * SIZE(known) <= SIZE(ME.participants) && m != N - 1 -> do_blame = 1
        :: else
        fi
     :: else
     fi;
     known = 0;
     y = 0
  :: else
  fi;

  if /* on_most_agree */
  :: do_adopt ->
     next_number = ME.number + 1;
     next_result = ME.result;
     enter(next_number, ME.contributors, ME.participants, 1, next_result);
     TELL_ALL(ME.participants, propose, ME.number, ME.contributors, ME.participants, 0,
              ADOPTED + RESULT * ME.adopted_result);
     ME.has_prepared = 1;
     ME.word[m] = ME.number + 1;
     ME.told[m] = ME.result;
     TELL_ALL(ME.participants, prepared, ME.number, ME.result, 0, 0, 0)
  :: else
  fi;

  do_adopt = 0;
  next_result = 0;
  known = 0;
  ones = 0;
  do_recover = 0;
  do_start = 0;
  do_finish = 0;
  do_propose = 0;
  do_prepare = 0;
  do_commit = 0;
  keep = 0;
  alive = 0;
  next = 0;
  next_number = 0;
  next_contributors = 0;
  next_participants = 0;
  next_adopted = 0;
  audience = 0;
  a = 0;
  b = 0;
  c = 0;
  d = 0;
  e = 0;
  what = 0;
  j = 0;
  suspects = 0;
  dies = 0;
  ends = 0
}

inline on_suspicion(who) {
  if
  :: !HAS(ME.lost, who) ->
     ME.lost = ME.lost | BIT(who);
     if
     :: who == leader_of(ME.promised) -> ME.yields_to = 0
     :: else
     fi;
     if
     :: ME.asks != 0 ->
        ME.waiting = WITHOUT(ME.waiting, BIT(who));
        ME.answered = WITHOUT(ME.answered, BIT(who));
        ME.view_of[who] = 0;
        ME.holds[who] = 0;
        ME.result_of[who] = 0;
        do_finish = ME.waiting == 0
     :: else ->
        if
        :: HAS(ME.participants, who) || who == leader_of(ME.promised) ->
           if
           :: !lead() && who != leader_of(ME.promised) && !HAS(ME.lost, leader_of(ME.promised)) ->
              y = leader_of(ME.promised);
              TELL(y, suspect, ME.number, who, 0, 0, 0);
              y = 0
           :: else
           fi;
           do_recover = 1
        :: else
        fi
     fi
  :: else
  fi
}

/* Another member's promise is to a number above ours. */
inline fall_behind() {
  if
  :: a > ME.number && !HAS(c, m) && a / N == d / N -> end_failed()
  :: else ->
     ME.promised = d;
#ifndef PLANT_NEVER_YIELD
     ME.yields_to = d;
#endif
     ME.successor = 0;
     forget_takeover()
  fi
}

/* A message from member j: what(a, b, c, d, e). Runs also after the end. */
inline on_message() {
  if
  :: what == propose ->
     if
     :: ME.is == committed -> TELL(j, commit, ME.number, ME.contributors, ME.result, 0, 0)
     :: ME.is == running && a != ME.number ->
        if
#ifndef PLANT_ACCEPT_BELOW_PROMISE
        :: a < ME.promised ->
#else
        :: a < ME.number ->
#endif
           TELL(j, promise, ME.number, ME.contributors, ME.participants, ME.promised, PROMISE_FLAGS(1))
        :: else ->
           if
           :: !HAS(c, m) -> end_failed()
           :: else ->
              ME.lost = WITHOUT(ME.lost, c);
              enter(a, b, c, (e & ADOPTED) / ADOPTED, e / RESULT)
           fi
        fi
     :: else
     fi

  :: what == prepared && ME.is == running ->
     if
     :: ME.word[j] < a + 1 -> ME.word[j] = a + 1; ME.told[j] = b
     :: else
     fi;
     do_commit = 1

  :: what == suspect ->
     if
     :: ME.is == committed -> TELL(j, commit, ME.number, ME.contributors, ME.result, 0, 0)
     :: ME.is == running && b != m &&
             (j == b ||
                 (!HAS(ME.lost, j) && HAS(ME.participants, j) && a >= ME.number)) ->
        if
        :: j == b && b == leader_of(ME.promised) -> ME.yields_to = 0
        :: else
        fi;
        on_suspicion(b)
     :: else
     fi

#ifndef PLANT_BELIEVE_ANYBODY
  :: what == commit && ME.is == running && d == FORGED -> skip
  :: what == commit && ME.is == running && d != FORGED ->
#else
  :: what == commit && ME.is == running ->
#endif
     if
     :: leader_of(ME.promised) == m -> TELL_ALL(ALL, commit, a, b, c, 0, 0)
     :: else
     fi;
     if
     :: b == ME.contributors && ME.complete && c == ME.result -> end_committed()
     :: else -> end_failed()
     fi

  :: what == abort && ME.is == running ->
     if
     :: j == leader_of(ME.number) || j == leader_of(ME.promised) -> end_failed()
     :: else
     fi

  :: what == takeover ->
     if
     :: ME.is == running && a > ME.promised ->
        ME.promised = a;
        ME.yields_to = 0;
        forget_takeover()
     :: else
     fi;
     TELL(j, promise, ME.number, ME.contributors, ME.participants,
          (ME.is == committed -> a : ME.promised), PROMISE_FLAGS(1))

  :: what == promise && ME.is == running ->
     if
     :: ME.asks == 0 ->
        if
        :: (e & KNOWS) && d > ME.promised -> fall_behind()
        :: else
        fi
     :: ME.asks != 0 && HAS(ME.waiting, j) ->
        if
        :: (e & KNOWS) && !(e & COMMITTED) && d < ME.asks
        :: (e & KNOWS) && !(e & COMMITTED) && d > ME.asks ->
           fall_behind()
        :: else ->
           ME.waiting = WITHOUT(ME.waiting, BIT(j));
           if
           :: (e & COMMITTED) -> ME.decided = b; ME.decided_result = e / RESULT
           :: !(e & COMMITTED) && (e & KNOWS) ->
              ME.answered = ME.answered | BIT(j);
              ME.view_of[j] = a;
              ME.holds[j] = ((e & PREPARED) -> b : 0);
              ME.result_of[j] = e / RESULT;
              if
              :: a >= ME.high ->
                 ME.high_result = ((e & ADOPTED) -> e / RESULT : 0);
                 ME.high = a;
                 ME.high_contributors = b;
                 ME.high_participants = c;
                 ME.high_adopted = (e & ADOPTED) / ADOPTED
              :: else
              fi
           :: else
           fi;
           do_finish = ME.waiting == 0
        fi
     :: else
     fi

  :: else
  fi
}

/* Are all inputs of the result available? Members that have entered another view do not count. */
#ifdef SAFETY_ONLY
#define can_complete() (1)
#else
#define there(i)                                                                                   \
  ((mem[i].is == running && (!HAS(ME.participants, i) || mem[i].number == ME.number))              \
   || mem[i].is == committed || (mem[i].is == dead && mem[i].left_all))
#define needs(i) (!HAS(ME.contributors | ME.participants, i) || (i) == m || there(i))
#if N == 3
#define can_complete() (needs(0) && needs(1) && needs(2))
#elif N == 4
#define can_complete() (needs(0) && needs(1) && needs(2) && needs(3))
#else
#define can_complete() (needs(0) && needs(1) && needs(2) && needs(3) && needs(4))
#endif
#endif

/* Can the leader send the bytes of the result that it adopted? */
#define serves(i)                                                                                  \
  (leader_of(ME.number) == (i)                                                                     \
   && ((mem[i].is == running && mem[i].number == ME.number) || mem[i].is == committed))
#if N == 3
#define served() (serves(0) || serves(1) || serves(2))
#elif N == 4
#define served() (serves(0) || serves(1) || serves(2) || serves(3))
#else
#define served() (serves(0) || serves(1) || serves(2) || serves(3) || serves(4))
#endif

/* Time passes when nothing else can happen. If it passes earlier, that counts as a fault. */
#ifdef SAFETY_ONLY
#define time_passes() 0
#else
#define time_passes() timeout
#endif
#define patience_ends() (time_passes() || wrong > 0)
#define early()                                                                                    \
  if                                                                                               \
  :: wrong > 0 -> wrong--                                                                          \
  :: else                                                                                          \
  fi

/* The members that this member waits for: it cannot proceed without them. */
#define awaits(i)                                                                                  \
  (ME.asks == 0                                                                                    \
   && (ME.complete                                                                                 \
         -> (ME.promised == ME.number                                                              \
             && (lead() -> HAS(ME.participants, i) && ME.word[i] != ME.number + 1                  \
                         : (i) == leader_of(ME.number)))                                           \
         : HAS(ME.contributors | ME.participants, i)))

#define gone(i) (mem[i].is == dead || mem[i].is == failed)

#define DELIVER(i)                                                                                 \
  :: atomic { FROM_TO(i, m)?what(a, b, c, d, e) -> j = i; goto act }                               \
  :: atomic { /* the remaining messages of a dead member are lost */                               \
    mem[i].is == dead && nempty(FROM_TO(i, m)) -> d_step { flush(i, m) }; goto act                 \
  }

#define LOSE(i)                                                                                    \
  :: atomic { /* a member that is dead or has failed sends no more messages */                     \
    gone(i) && empty(FROM_TO(i, m)) && !HAS(ME.lost, i) -> suspects = i + 1; goto act              \
  }                                                                                                \
  :: atomic { /* a wrong suspicion */                                                              \
    wrong > 0 && !gone(i) && !HAS(ME.lost, i) -> wrong--; suspects = i + 1; goto act               \
  }                                                                                                \
  :: atomic { /* a broken link */                                                                  \
    wrong > 0 && lost_links > 0 && !gone(i) && nempty(FROM_TO(i, m)) && !HAS(ME.lost, i) ->        \
    d_step { wrong--; lost_links--; flush(i, m); suspects = i + 1 };                               \
    goto act                                                                                       \
  }                                                                                                \
  :: atomic { /* it is stalled */                                                                  \
    time_passes() && !gone(i) && !HAS(ME.lost, i) && awaits(i) -> suspects = i + 1; goto act       \
  }

proctype member(byte m) {
  mtype what;
  byte j, a, b, c, d, e, x, y, suspects;
  bit dies, ends;
  byte alive, next, next_number, next_contributors, next_participants, audience;
  byte next_result, known, ones;
  bit do_adopt, do_blame, lies;
  bit keep, next_adopted;
  bit do_recover, do_start, do_finish, do_propose, do_prepare, do_commit;
  bit beyond;

  if
  :: ME.is == running
  :: else -> goto end_of_round
  fi;

in_round:
  if
  :: atomic {
    !ME.complete && !ME.repairs && can_complete() -> ME.complete = 1;
    /* An adopted result is the one that others hold. */
    ME.result = (ME.adopted_result != 0 -> ME.adopted_result : 1);
#ifdef LIAR
    if
    :: m != N - 1 && HAS(ME.contributors, N - 1) && ME.adopted_result == 0 -> ME.result = 2
    :: skip
    fi;
#endif
#ifdef PLANT_PREPARE_BELOW_PROMISE
    do_prepare = !ME.has_prepared;
#else
    do_prepare = ME.promised == ME.number && !ME.has_prepared;
#endif
    goto act
  }
  :: atomic { /* the leader sends the bytes of the adopted result */
    ME.repairs != 0 && served() ->
    ME.repairs = 0;
    ME.complete = 1;
    ME.result = ME.adopted_result;
    do_prepare = ME.promised == ME.number && !ME.has_prepared;
    goto act
  }
  :: atomic { /* the members compared their results: the reducer is at fault */
    do_blame -> do_blame = 0; suspects = N; goto act
  }
  DELIVER(OTHER(0))
  DELIVER(OTHER(1))
  LOSE(OTHER(0))
  LOSE(OTHER(1))
#if N > 3
  DELIVER(OTHER(2))
  LOSE(OTHER(2))
#endif
#if N > 4
  DELIVER(OTHER(3))
  LOSE(OTHER(3))
#endif
  :: atomic { /* the answers do not arrive */
    ME.asks != 0 && patience_ends() -> d_step {
      early();
      ME.lost = ME.lost | ME.waiting;
      ME.waiting = 0;
      do_finish = 1
    };
    goto act
  }
  :: atomic { /* the member that has our promise does not propose */
    ME.asks == 0 && ME.promised > ME.number &&
    (!HAS(ME.lost, leader_of(ME.promised)) || yields()) &&
    leader_of(ME.promised) != m && patience_ends() -> d_step {
      early();
      ME.yields_to = 0;
      ME.lost = ME.lost | BIT(leader_of(ME.promised));
      do_recover = 1
    };
    goto act
  }
  :: atomic { /* the member that has our promise is lost */
    ME.asks == 0 && !lead() && HAS(ME.lost, leader_of(ME.promised)) && ME.successor == 0 &&
    !yields() ->
    do_recover = 1;
    goto act
  }
#ifndef PLANT_WAIT_FOR_SUCCESSOR
  :: atomic { /* the successor does not take over */
    ME.asks == 0 && !lead() && HAS(ME.lost, leader_of(ME.promised)) && ME.successor != 0 &&
    patience_ends() -> d_step {
      early();
      ME.passed_over = ME.passed_over | BIT(ME.successor - 1);
      ME.successor = 0;
      do_recover = 1
    };
    goto act
  }
#endif
#if CRASHES > 0
  :: atomic {
    crashes > 0 -> crashes--;
#ifndef SAFETY_ONLY
    if
    :: ME.left_all = 1
    :: skip
    fi;
#endif
    dies = 1;
    goto act
  }
#endif
#if FORGES > 0
  :: atomic { /* for any result, to any member */
    m == N - 1 && forges > 0 -> forges--;
    if
    :: j = 0
    :: j = 1
    fi;
    if
    :: y = 1
    :: y = 2
    fi;
    TELL(j, commit, ME.number, ME.contributors, y, FORGED, 0);
    y = 0;
    goto act
  }
#endif
#if GIVE_UPS > 0
  :: atomic { give_ups > 0 -> give_ups--; ends = 1; goto act }
#endif
  fi;

  /* After the end: requests are answered; a member that committed may still die. */
end_of_round:
  if
  DELIVER(OTHER(0))
  DELIVER(OTHER(1))
#if N > 3
  DELIVER(OTHER(2))
#endif
#if N > 4
  DELIVER(OTHER(3))
#endif
#if CRASHES > 0
  :: atomic { ME.is == committed && crashes > 0 -> crashes--; dies = 1; goto act }
#endif
  fi;

act:
  atomic {
    d_step {
      if
      :: dies -> end_failed(); ME.is = dead
      :: ends -> give_up()
      :: suspects != 0 -> on_suspicion(suspects - 1)
      :: what != 0 -> on_message()
      :: else
      fi;
      consequences()
    };
    if
    :: ME.is == running && !beyond -> goto in_round
    :: else -> goto end_of_round
    fi
  }
}

/* Faults stop at some time; after that, time passes. */
#ifndef SAFETY_ONLY
proctype faults() {
  atomic {
    d_step {
      crashes = 0;
      wrong = 0;
      lost_links = 0;
      give_ups = 0
    }
  }
}
#endif

init {
  byte i, k;
  atomic {
    d_step {
      i = 0;
      do
      :: i < N ->
         mem[i].is = running;
         mem[i].contributors = ALL;
         mem[i].participants = ALL;
#ifdef LATE
         mem[i].complete = 1;
         mem[i].result = 1;
         mem[i].has_prepared = 1;
         k = 0;
         do
         :: k < N ->
            mem[i].word[k] = (k < N - 1 || i == N - 1);
            mem[i].told[k] = (k < N - 1 || i == N - 1);
            k++
         :: else -> break
         od;
         if
         :: i < N - 1 -> FROM_TO(N - 1, i)!prepared(0, 1, 0, 0, 0)
         :: else -> mem[i].is = committed; agreed = ALL; agreed_result = 1
         fi;
#endif
         i++
      :: else -> break
      od;
      i = 0;
      k = 0
    };
    run member(0);
    run member(1);
    run member(2);
#if N > 3
    run member(3);
#endif
#if N > 4
    run member(4);
#endif
#ifndef SAFETY_ONLY
    run faults()
#else
    skip
#endif
  }
}
