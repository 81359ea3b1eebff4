/*
 * What a leader that lies can do to the members of an averaging round of which F lie: a model of
 * runtime/averaging/round_decision for Spin. runtime/averaging/README.md has the proof.
 *
 * There are no leaders here: any member may be asked for its promise at any moment, and an honest
 * member may be sent any view that follows from promises. It is shown those of any members that gave
 * theirs, and for the liar anything. So whatever a leader does, be it honest or not, happens in some
 * schedule. The liar reports to each member that it has prepared whatever that member holds.
 * Left out: losses and timeouts.
 *
 * N, F       members; the last F lie, and N > 3 F
 * TERMS      views above 0, each the first one of a term
 * PLANT_…    an omitted rule; the search must find a violation
 *
 * A result is the set of its contributors. Safety: the assertion in `commit`.
 */
#ifndef N
#define N 4
#endif
#define F 1
#ifndef TERMS
#define TERMS 2
#endif
#define HONEST (N - F)
#define ALL ((1 << N) - 1)
#define BIT(i) (1 << (i))
#define HAS(set, i) (((set) >> (i)) & 1)
#define SIZE(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2) + HAS(set, 3) + HAS(set, 4))

#ifdef PLANT_MAJORITY
#define is_quorum(set) (2 * SIZE(set) > N || (2 * SIZE(set) == N && HAS(set, 0)))
#define smallest_quorum ((N + 1) / 2)
#else
#define is_quorum(set) (2 * SIZE(set) > N + F)
#define smallest_quorum ((N + F) / 2 + 1)
#endif
#ifdef PLANT_ONE_DENIES
#define deniers 0 /* one member that has not prepared is enough, as if nobody lied */
#else
#define deniers F
#endif

typedef member_state {
  byte view;
  byte contributors;
  byte participants;
  bit adopted;
  bit has_prepared;
  byte promised;
}
member_state mem[HONEST];

/* What an honest member signed: its promise to the view of term t. */
typedef promises_of {
  bit given[TERMS + 1];
  byte view[TERMS + 1];
  byte value[TERMS + 1]; /* 0: it reports no result */
}
promises_of said[HONEST];

/* The result that each reported as prepared in a view; 0: none. */
typedef reports_of {
  byte prepared[TERMS + 1];
}
reports_of reported[HONEST];

byte agreed; /* the committed result; 0: none yet */

#define ME mem[m]

/* A member commits what all honest participants of its view have prepared; the liar says so, too. */
inline commit() {
  v = 0;
  do
  :: v < HONEST ->
     all = mem[v].has_prepared;
     i = 0;
     do
     :: i < HONEST ->
        all = all && (!HAS(mem[v].participants, i) ||
                      reported[i].prepared[mem[v].view] == mem[v].contributors);
        i++
     :: else -> break
     od;
     if
     :: all ->
        assert(agreed == 0 || agreed == mem[v].contributors);
        agreed = mem[v].contributors
     :: else
     fi;
     v++
  :: else -> break
  od;
  v = 0;
  i = 0;
  all = 0
}

/* The number of shown promises that report `result`, and whether one is of a view above 0. */
inline count(result) {
  reporters = 0;
  above = 0;
  i = 0;
  do
  :: i < HONEST ->
     if
     :: HAS(shown, i) && said[i].value[from] == result ->
        reporters++;
        above = above || said[i].view[from] > 0
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0;
  if
  :: HAS(shown, N - 1) && lie == result -> reporters++; above = above || lie_above
  :: else
  fi
}

/* The view of term t that follows from the promises in `shown`. */
inline next_view() {
  adopts = 0;
  candidates = 0;
  bad = 0;
  counted = 0;
  k = 0;
  do
  :: k < N ->
     v = (k < HONEST -> (HAS(shown, k) -> said[k % HONEST].value[from] : 0) : (HAS(shown, k) -> lie : 0));
     if
     :: v != 0 && !HAS(counted, v) ->
        counted = counted | BIT(v);
        count(v);
        if
        :: (v == ALL && SIZE(shown) - reporters <= deniers) ||
           (above && SIZE(shown) - reporters <= deniers + N - smallest_quorum) ->
           candidates++;
           adopts = v;
           bad = bad || reporters <= F
        :: else
        fi
     :: else
     fi;
     k++
  :: else -> break
  od;
  k = 0;
  counted = 0;
  v = 0;
  reporters = 0;
  above = 0
}

proctype member(byte m) {
  byte t, i, k, v, shown, among, lie, from, reporters, candidates, adopts;
  int counted; /* results, one bit for each */
  bit all, above, lie_above, bad;

  do
  :: atomic { /* it is asked for its promise */
    ME.promised < TERMS ->
    t = ME.promised + 1;
    do
    :: t < TERMS -> t++
    :: break
    od;
    ME.promised = t;
    said[m].given[t] = 1;
    said[m].view[t] = ME.view;
    said[m].value[t] = ((ME.has_prepared || ME.adopted) -> ME.contributors : 0);
    t = 0
  }
  :: atomic { /* it holds the result */
    ME.promised == ME.view && !ME.has_prepared ->
    ME.has_prepared = 1;
    reported[m].prepared[ME.view] = ME.contributors;
    d_step { commit() }
  }
  :: atomic { /* it is sent a view */
    ME.view < TERMS ->
    t = ME.view + 1;
    do
    :: t < TERMS -> t++
    :: break
    od;
    from = t;
#ifdef PLANT_SHOW_AGAIN
    if /* promises that were given before */
    :: from > 1 -> from--
    :: skip
    fi;
#endif
    shown = 0;
    i = 0;
    do
    :: i < HONEST && said[i].given[from] -> shown = shown | BIT(i); i++
    :: i < HONEST -> i++ /* the leader does not show it */
    :: i == HONEST -> break
    od;
    if
    :: shown = shown | BIT(N - 1);
       if /* the liar reports nothing, or a result, as of view 0 or of a later one */
       :: lie = 0
       :: lie = ALL
       :: lie = ALL; lie_above = 1
       :: lie = ALL - 1; lie_above = 1
       :: lie = ALL - 2; lie_above = 1
       fi
    :: skip
    fi;
    i = 0;
    among = shown;
    if /* it may leave out a member that did promise */
    :: among = among & (ALL - BIT(0))
    :: among = among & (ALL - BIT(N - 1))
    :: skip
    fi;
    if
    :: t >= ME.promised && is_quorum(among) && HAS(among, m) ->
       d_step {
         next_view();
         if
         :: candidates > 1 || bad /* the round fails */
         :: else ->
            ME.view = t;
            ME.promised = t;
            ME.has_prepared = 0;
            ME.participants = among;
            if
            :: candidates == 1 -> ME.contributors = adopts; ME.adopted = 1
            :: else -> ME.contributors = among; ME.adopted = 0
            fi
         fi
       }
    :: else
    fi;
    t = 0; shown = 0; among = 0; lie = 0; lie_above = 0; from = 0;
    candidates = 0; adopts = 0; bad = 0; all = 0
  }
  od
}

init {
  byte i;
  atomic {
    do
    :: i < HONEST ->
       mem[i].contributors = ALL;
       mem[i].participants = ALL;
       i++
    :: else -> break
    od;
    i = 0;
    run member(0);
    run member(1);
    run member(2);
#if N > 4
    run member(3)
#else
    skip
#endif
  }
}
