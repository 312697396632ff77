-- A shop: warehouses with ten districts each, their customers, stock and orders. psql sets `warehouses`.
\set QUIET on
\set ON_ERROR_STOP on
create extension pg_prewarm;

create table warehouse as
    select w, 'warehouse ' || w as name, 0.05 as tax, 0::numeric as paid from generate_series(1, :warehouses) w;
create table district as
    select w, d, 'district ' || d as name, 0.07 as tax, 0::numeric as paid, 1001 as next_order
    from generate_series(1, :warehouses) w, generate_series(1, 10) d;
create table customer as
    select w, d, c, 'customer ' || c as name, 0::numeric as balance, 0 as payments, repeat('c', 400) as data
    from generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) c;
create table stock as
    select w, p, 50 + (w * p) % 50 as quantity, 0 as sold, 0 as orders, repeat('s', 240) as data
    from generate_series(1, :warehouses) w, generate_series(1, 100000) p;
create table orders as
    select w, d, o, 1 + (o * 7) % 3000 as c, now() as entered, 10 as lines, o <= 700 as delivered
    from generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 1000) o;
create table new_order as
    select w, d, o from orders where not delivered;
create table order_line as
    select w, d, o, n, 1 + (o * 1009 + n * 7919) % 100000 as p, 5 as quantity, 9.99 as amount, repeat('l', 24) as data
    from orders, generate_series(1, 10) n;
create table history (w int, d int, c int, paid numeric, at timestamptz default now());

alter table warehouse add primary key (w);
alter table district add primary key (w, d);
-- Room for updates on the page of the row.
alter table warehouse set (fillfactor = 10);
alter table district set (fillfactor = 10);
alter table customer add primary key (w, d, c);
alter table stock add primary key (w, p);
alter table orders add primary key (w, d, o);
create index orders_of_customer on orders (w, d, c, o);
alter table new_order add primary key (w, d, o);
alter table order_line add primary key (w, d, o, n);
vacuum (full, analyze) warehouse;
vacuum (full, analyze) district;
vacuum analyze;
checkpoint;
