"""The rows of the table of faults. A test of a row has its id in its name, as in `test_a1_…`."""

#: every row: its id, and the fault
FAULTS = """
A1 supervisor killed at every journal write
A2 killed between an effect and its outcome
A3 killed between an intent and its effect
A4 worker process killed
A5 process group killed in a loop
A6 power cut
A7 disk full on the journal
A8 disk full on artefacts
A9 fsync returns an error once
A10 slow disk
A11 tail of the write-ahead log cut off
A12 one bit flipped in the journal
A14 journal read-only
A16 two supervisors on one SQLite file
A17 old SQLite
A18 journals of older versions
A19 journals of newer versions
A20 out of memory
B1 wall clock moved during a run
B3 restart after a long time
B4 clocks of nodes differ
B5 event loop blocked
C1 worker hangs
C2 hung worker reports late
C3 slow worker
C4 worker crashes in a loop
C5 everything delivered twice
C7 task that kills its worker
C8 leader dies right after its claim
C10 graceful stop during load
D1 429 with Retry-After
D2 429 without a header
D3 burst of 500, 502, 503
D4 connect and read timeouts
D5 stream cut off in the middle
D7 malformed JSON, wrong schema
D8 call of an unknown tool
D9 empty answer, refusal, length limit
D12 key revoked
D13 all providers down
E1 cycle in a plan
E2 unknown worker or tool in a plan
E3 dangling needs, duplicate ids
E4 empty plan
E5 vague tasks
E6 huge plans
E7 tasks that plan ever more
E9 malicious plan
E10 success declared early
F1 tool raises anything
F2 huge output of a tool
F4 endless loop in Python
F5 endless loop in native code
F6 fork, memory, disk and descriptor bombs
F8 sandbox disappears
F9 sandbox escapes
F10 MCP server dies, hangs or floods
F11 MCP tool changes after approval
F12 secrets in tool output
F13 tool writes where it may not
F14 two tasks write one board block
G1 preempted at the instant of completion
G3 priority inversion
G4 cancel storm
G5 cancel racing completion
G6 budget hit by parallel calls
G7 budget changed during a run
G8 deadline passes in every state
G9 person never answers
G12 approval text written by a model
G13 loop without progress
H1 leader killed with a standby
H2 leader frozen past its lease
H3 leader cut off from the database
H5 workers cut off from the leader
H6 database restarted
H7 database killed
H8 connections exhausted, idle in transaction
H9 transaction pooler in between
H10 serialization failure, deadlock
H11 links cut one by one, healed in random order
H12 two versions during an upgrade
H13 rogue node joins
I1 instructions in tool output
I2 injection through the board
I4 exfiltration through allowed destinations
I5 path traversal
I6 server-side request forgery
I7 command, SQL and template injection
I8 huge, slow and deep request bodies
I9 routes without authentication
I10 token guessing and reuse
I11 cross-site requests
I12 DNS rebinding
I13 stored cross-site scripting
I15 reads across tenants
I16 journal bytes written by an attacker
I17 malicious dependency
I18 bind to a public address without authentication
I19 log injection, terminal escapes
J1 absurd or wrong values
J2 events that would not decode
J3 a decision raises
J4 a posted run that kills its leader
J5 usage missing or absurd
J6 hostile text through every channel
J7 one request always gets a server error
J8 permanent refusals
J9 silent waits
J10 questions that a rule-based model was not written for
J11 another worker takes over after recorded steps
J12 descriptors, threads or memory short
"""

IDS = tuple(line.split()[0] for line in FAULTS.strip().splitlines())
